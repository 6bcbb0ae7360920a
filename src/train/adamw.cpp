#include "moeloom/train/adamw.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace moeloom {

namespace {

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
  template <typename Weights, typename Moments>
  void apply(const float* grad, Weights weights, Moments moments, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      float w = weights.read(i), first = moments.first(i), second = moments.second(i);
      apply(grad[i], w, first, second);
      weights.write(i, w);
      moments.write(i, first, second);
    }
  }

 private:
  static double correction(double beta, Index time) { return 1 - std::pow(beta, static_cast<double>(time)); }
};

struct FloatWeights {
  float* w;
  float read(std::size_t i) const { return w[i]; }
  void write(std::size_t i, float value) const { w[i] = value; }
};
struct SplitWeights {
  std::uint16_t *high, *low;
  float read(std::size_t i) const { return joined(high[i], low[i]); }
  void write(std::size_t i, float value) const {
    const Halves halves = split(value);
    high[i] = halves.high;
    low[i] = halves.low;
  }
};
struct Bf16Weights {
  std::uint16_t* w;
  RandomPiece random;
  float read(std::size_t i) const { return bf16_to_float(w[i]); }
  void write(std::size_t i, float value) const { w[i] = bf16_at_random(value, random.bits(i) & 0xffffu); }
};

struct FloatMoments {
  float *m, *v;
  float first(std::size_t i) const { return m[i]; }
  float second(std::size_t i) const { return v[i]; }
  void write(std::size_t i, float first, float second) const {
    m[i] = first;
    v[i] = second;
  }
};
struct Bf16Moments {
  std::uint16_t *m, *v;
  RandomPiece random;
  float first(std::size_t i) const { return bf16_to_float(m[i]); }
  float second(std::size_t i) const { return bf16_to_float(v[i]); }
  void write(std::size_t i, float first, float second) const {
    const std::uint32_t bits = random.bits(i);
    m[i] = bf16_at_random(first, bits & 0xffffu);
    v[i] = bf16_at_random(second, bits >> 16);
  }
};

constexpr auto kPiece = at(MomentView::kPiece);

/// Elements of a piece, by the loop of their formats.
template <typename Weights>
void update_piece(const Factors& factors, std::span<const float> grad, Weights weights, MomentView m,
                  MomentView v, const AdamWUpdate& update, Index begin) {
  const std::size_t count = grad.size();
  if (m.format() == MomentFormat::kFp32)
    return factors.apply(grad.data(), weights, FloatMoments{m.words().data(), v.words().data()}, count);
  if (m.format() == MomentFormat::kBf16)
    return factors.apply(grad.data(), weights,
                         Bf16Moments{m.halves(), v.halves(), RandomPiece(update.rounding, begin)}, count);
  std::array<float, kPiece> first, second;
  std::array<std::uint16_t, kPiece> low, high;
  m.decode(first);
  v.decode(second);
  factors.apply(grad.data(), weights, FloatMoments{first.data(), second.data()}, count);
  fill_random(update.rounding, begin, std::span(low).first(count), std::span(high).first(count));
  m.encode(std::span(first).first(count), low);
  v.encode(std::span(second).first(count), high);
}

}  // namespace

std::uint64_t rounding_of_weights(std::uint64_t rounding) {
  return CounterRandom(stream_of("weights"), 0).bits(rounding);
}

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  std::span<float> w, std::span<float> m, std::span<float> v) {
  require(w.size() == grad.size() && m.size() == grad.size() && v.size() == grad.size(),
          "adamw_update needs stretches of one length");
  Factors(settings, update)
      .apply(grad.data(), FloatWeights{w.data()}, FloatMoments{m.data(), v.data()}, grad.size());
}

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  const StoredRows& w, MomentView m, MomentView v) {
  require(w.size() == std::ssize(grad) && m.size() == std::ssize(grad) && v.size() == std::ssize(grad),
          "adamw_update needs stretches of one length");
  if (w.storage() == Storage::kFp32 && m.format() == MomentFormat::kFp32)
    return adamw_update(settings, update, grad, {w.values(), grad.size()}, m.words(), v.words());
  const Factors factors(settings, update);
  const std::uint64_t of_weights = w.storage() == Storage::kBf16 ? rounding_of_weights(update.rounding) : 0;
  for (std::size_t begin = 0; begin < grad.size(); begin += kPiece) {
    const auto first = static_cast<Index>(begin);
    const std::span<const float> here = grad.subspan(begin, std::min(kPiece, grad.size() - begin));
    const MomentView m_here = m.part(first, std::ssize(here)), v_here = v.part(first, std::ssize(here));
    const auto run = [&](auto weights) {
      update_piece(factors, here, weights, m_here, v_here, update, first);
    };
    switch (w.storage()) {
      case Storage::kFp32:
        run(FloatWeights{w.values() + begin});
        break;
      case Storage::kSplit:
        run(SplitWeights{w.high() + begin, w.low() + begin});
        break;
      case Storage::kBf16:
        run(Bf16Weights{w.high() + begin, RandomPiece(of_weights, first)});
    }
  }
}

}  // namespace moeloom
