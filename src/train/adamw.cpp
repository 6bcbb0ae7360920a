#include "train/adamw.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "tensor/fetch_lines.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "moment_codes.hpp"

namespace moeloom {

namespace {

constexpr std::size_t kAtOnce = 64;  // elements
constexpr std::size_t kAhead = 512;

/// The lines of kAtOnce numbers that are read after kAhead more: the processor's own prefetch of as many
/// streams stops at every page.
template <typename Number>
void ask_for(const Number* numbers) {
  fetch_lines(numbers, kAhead * sizeof(Number), kAtOnce * sizeof(Number));
}

/// The numbers that every element is updated by.
struct Factors {
  float scale, beta1, beta2, rest1, rest2, keep, step, root, epsilon;

  Factors(const AdamW& settings, const AdamWUpdate& update)
      : scale(static_cast<float>(update.grad_scale)),
        beta1(static_cast<float>(settings.beta1)),
        beta2(static_cast<float>(settings.beta2)),
        rest1(static_cast<float>(1 - settings.beta1)),
        rest2(static_cast<float>(1 - settings.beta2)),
        keep(static_cast<float>(1 - update.learning_rate * update.weight_decay)),
        step(static_cast<float>(update.learning_rate / correction(settings.beta1, update.time))),
        root(static_cast<float>(1 / std::sqrt(correction(settings.beta2, update.time)))),
        epsilon(static_cast<float>(settings.epsilon)) {}

  void apply(float grad, float& w, float& m, float& v) const {
    const float g = scale * grad;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    w = keep * w - step * m / (std::sqrt(v) * root + epsilon);
  }
  /// By one loop whatever the formats: arrays between its parts took a third longer.
  template <typename Number, typename Weights, typename Moments>
  void apply(const Number* grad, Weights weights, Moments moments, std::uint32_t counter,
             std::size_t count) const {
    std::size_t i = 0;
    for (; i + kAtOnce <= count; i += kAtOnce) {
      ask_for(grad + i);
      weights.ask(i);
      moments.ask(i);
      apply_some(grad, weights, moments, counter, i, i + kAtOnce);
    }
    apply_some(grad, weights, moments, counter, i, count);
  }

 private:
  template <typename Number, typename Weights, typename Moments>
  [[gnu::always_inline]] void apply_some(const Number* grad, Weights weights, Moments moments,
                                         std::uint32_t counter, std::size_t begin, std::size_t end) const {
    counter += static_cast<std::uint32_t>(begin) * RandomBits::kStep;
    for (std::size_t i = begin; i < end; ++i, counter += RandomBits::kStep) {
      const std::uint32_t random = RandomBits::mixed(counter);
      float w = weights.read(i), first = moments.first(i), second = moments.second(i);
      apply(as_float(grad[i]), w, first, second);
      weights.write(i, w, random);
      moments.write(i, first, second, random);
    }
  }
  static double correction(double beta, Index time) { return 1 - std::pow(beta, static_cast<double>(time)); }
};

struct FloatWeights {
  float* w;
  void ask(std::size_t i) const { ask_for(w + i); }
  float read(std::size_t i) const { return w[i]; }
  void write(std::size_t i, float value, std::uint32_t /*random*/) const { w[i] = value; }
};
struct SplitWeights {
  std::uint16_t *high, *low;
  void ask(std::size_t i) const { ask_for(high + i), ask_for(low + i); }
  float read(std::size_t i) const { return joined(high[i], low[i]); }
  void write(std::size_t i, float value, std::uint32_t /*random*/) const {
    const Halves halves = split(value);
    high[i] = halves.high;
    low[i] = halves.low;
  }
};
struct Bf16Weights {
  std::uint16_t* w;
  void ask(std::size_t i) const { ask_for(w + i); }
  float read(std::size_t i) const { return bf16_to_float(w[i]); }
  void write(std::size_t i, float value, std::uint32_t random) const {
    w[i] = bf16_at_random(value, RandomBits::another_16(random));
  }
};

struct FloatMoments {
  float *m, *v;
  void ask(std::size_t i) const { ask_for(m + i), ask_for(v + i); }
  float first(std::size_t i) const { return m[i]; }
  float second(std::size_t i) const { return v[i]; }
  void write(std::size_t i, float first, float second, std::uint32_t /*random*/) const {
    m[i] = first;
    v[i] = second;
  }
};
struct Bf16Moments {
  std::uint16_t *m, *v;
  void ask(std::size_t i) const { ask_for(m + i), ask_for(v + i); }
  float first(std::size_t i) const { return bf16_to_float(m[i]); }
  float second(std::size_t i) const { return bf16_to_float(v[i]); }
  void write(std::size_t i, float first, float second, std::uint32_t random) const {
    m[i] = bf16_at_random(first, random & 0xffffu);
    v[i] = bf16_at_random(second, random >> 16);
  }
};

constexpr auto kPiece = at(MomentView::kPiece);

/// Of a piece, whose scales are known only when all of its new numbers are: these wait as floats.
struct Int8Moments {
  const std::int8_t* m;
  const std::uint8_t* v;
  float m_scale, v_scale;
  float *new_m, *new_v_root;
  void ask(std::size_t i) const { ask_for(m + i), ask_for(v + i); }
  float first(std::size_t i) const { return FirstCodes::value(m[i], m_scale); }
  float second(std::size_t i) const { return SecondCodes::value(v[i], v_scale); }
  void write(std::size_t i, float first, float second, std::uint32_t /*random*/) const {
    new_m[i] = FirstCodes::given(first);
    new_v_root[i] = SecondCodes::given(second);
  }
};

template <typename Number, typename Weights>
void update_int8(const Factors& factors, const Number* grad, Weights weights, MomentView m, MomentView v,
                 std::uint32_t counter, std::size_t count) {
  std::array<float, kPiece> first, second;
  const Int8Block<FirstCodes> m_block(m.words().data());
  const Int8Block<SecondCodes> v_block(v.words().data());
  factors.apply(
      grad, weights,
      Int8Moments{m_block.codes, v_block.codes, *m_block.scale, *v_block.scale, first.data(), second.data()},
      counter, count);
  const float m_factor = m_block.begin(std::span(first).first(count));
  const float v_factor = v_block.begin(std::span(second).first(count));
  // Short loops over numbers of 32 bits: the processor has more elements of them in work than of one long
  // loop, and a loop over bytes is unrolled beyond what registers hold.
  std::array<std::uint32_t, kPiece> random;
  std::array<int, kPiece> codes;
  for (std::size_t i = 0; i < count; ++i, counter += RandomBits::kStep)
    random[i] = RandomBits::mixed(counter);
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = FirstCodes::at_random(first[i], m_factor, fraction_of(random[i] << 9));
  for (std::size_t i = 0; i < count; ++i) m_block.codes[i] = static_cast<std::int8_t>(codes[i]);
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = SecondCodes::at_random(second[i], v_factor, fraction_of(random[i]));
  for (std::size_t i = 0; i < count; ++i) v_block.codes[i] = static_cast<std::uint8_t>(codes[i]);
}

/// A stretch of weights by the loop of its formats. weights_from(i) are those from element i on.
template <typename Number, typename WeightsFrom>
void update_stretch(const Factors& factors, std::span<const Number> grad, WeightsFrom weights_from,
                    MomentView m, MomentView v, const RandomBits& random) {
  const std::size_t count = grad.size();
  if (m.format() == MomentFormat::kFp32)
    return factors.apply(grad.data(), weights_from(0), FloatMoments{m.words().data(), v.words().data()},
                         random.counter(0), count);
  if (m.format() == MomentFormat::kBf16)
    return factors.apply(grad.data(), weights_from(0), Bf16Moments{m.halves(), v.halves()}, random.counter(0),
                         count);
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t here = std::min(kPiece, count - begin);
    const auto first = static_cast<Index>(begin), elements = static_cast<Index>(here);
    update_int8(factors, grad.data() + begin, weights_from(begin), m.part(first, elements),
                v.part(first, elements), random.counter(first), here);
  }
}

template <typename Number>
void update_stored(const AdamW& settings, const AdamWUpdate& update, std::span<const Number> grad,
                   const StoredRows& w, MomentView m, MomentView v) {
  require(w.size() == std::ssize(grad) && m.size() == std::ssize(grad) && v.size() == std::ssize(grad),
          "adamw_update needs stretches of one length");
  const Factors factors(settings, update);
  const RandomBits random(update.rounding);
  require(w.storage() != Storage::kF16, "weights in F16 are frozen");
  const auto run = [&](auto weights_from) { update_stretch(factors, grad, weights_from, m, v, random); };
  switch (w.storage()) {
    case Storage::kFp32:
      return run([&](std::size_t i) { return FloatWeights{w.values() + i}; });
    case Storage::kSplit:
      return run([&](std::size_t i) { return SplitWeights{w.high() + i, w.low() + i}; });
    case Storage::kBf16:
      return run([&](std::size_t i) { return Bf16Weights{w.high() + i}; });
    case Storage::kF16:
      break;
  }
}

}  // namespace

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  std::span<float> w, std::span<float> m, std::span<float> v) {
  require(w.size() == grad.size() && m.size() == grad.size() && v.size() == grad.size(),
          "adamw_update needs stretches of one length");
  Factors(settings, update)
      .apply(grad.data(), FloatWeights{w.data()}, FloatMoments{m.data(), v.data()}, 0,
             static_cast<int>(grad.size()));
}

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  const StoredRows& w, MomentView m, MomentView v) {
  update_stored(settings, update, grad, w, m, v);
}

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const std::uint16_t> grad,
                  const StoredRows& w, MomentView m, MomentView v) {
  update_stored(settings, update, grad, w, m, v);
}

}  // namespace moeloom
