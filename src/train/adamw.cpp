#include "moeloom/train/adamw.hpp"

#include "moeloom/base/errors.hpp"
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
  void apply(const float* grad, float* w, float* m, float* v, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) apply(grad[i], w[i], m[i], v[i]);
  }
  /// Moments in bf16, by one loop: arrays between its parts took a third longer.
  void apply(const float* grad, float* w, std::uint16_t* m, std::uint16_t* v, std::size_t count,
             RandomPiece random) const {
    for (std::size_t i = 0; i < count; ++i) {
      float first = bf16_to_float(m[i]), second = bf16_to_float(v[i]);
      apply(grad[i], w[i], first, second);
      const std::uint32_t bits = random.bits(i);
      m[i] = bf16_at_random(first, bits & 0xffffu);
      v[i] = bf16_at_random(second, bits >> 16);
    }
  }

 private:
  static double correction(double beta, Index time) { return 1 - std::pow(beta, static_cast<double>(time)); }
};

}  // namespace

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  std::span<float> w, std::span<float> m, std::span<float> v) {
  require(w.size() == grad.size() && m.size() == grad.size() && v.size() == grad.size(),
          "adamw_update needs stretches of one length");
  Factors(settings, update).apply(grad.data(), w.data(), m.data(), v.data(), grad.size());
}

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  std::span<float> w, MomentView m, MomentView v) {
  if (m.format() == MomentFormat::kFp32) return adamw_update(settings, update, grad, w, m.words(), v.words());
  require(w.size() == grad.size() && m.size() == std::ssize(grad) && v.size() == std::ssize(grad),
          "adamw_update needs stretches of one length");
  constexpr auto kPiece = at(MomentView::kPiece);
  const Factors factors(settings, update);
  std::array<float, kPiece> first, second;
  std::array<std::uint16_t, kPiece> low, high;
  for (std::size_t begin = 0; begin < grad.size(); begin += kPiece) {
    const std::size_t count = std::min(kPiece, grad.size() - begin);
    const MomentView m_here = m.part(static_cast<Index>(begin), static_cast<Index>(count));
    const MomentView v_here = v.part(static_cast<Index>(begin), static_cast<Index>(count));
    if (m.format() == MomentFormat::kBf16) {
      factors.apply(grad.data() + begin, w.data() + begin, m_here.halves(), v_here.halves(), count,
                    RandomPiece(update.rounding, static_cast<Index>(begin)));
      continue;
    }
    m_here.decode(first);
    v_here.decode(second);
    factors.apply(grad.data() + begin, w.data() + begin, first.data(), second.data(), count);
    fill_random(update.rounding, static_cast<Index>(begin), std::span(low).first(count),
                std::span(high).first(count));
    m_here.encode(std::span(first).first(count), low);
    v_here.encode(std::span(second).first(count), high);
  }
}

}  // namespace moeloom
