#include "moeloom/train/adamw.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>

namespace moeloom {

void adamw_update(const AdamW& settings, const AdamWUpdate& update, std::span<const float> grad,
                  std::span<float> w, std::span<float> m, std::span<float> v) {
  require(w.size() == grad.size() && m.size() == grad.size() && v.size() == grad.size(),
          "adamw_update needs stretches of one length");
  const auto time = static_cast<double>(update.time);
  const double correction1 = 1 - std::pow(settings.beta1, time);
  const double correction2 = 1 - std::pow(settings.beta2, time);
  const auto scale = static_cast<float>(update.grad_scale);
  const auto beta1 = static_cast<float>(settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const auto rest1 = static_cast<float>(1 - settings.beta1);
  const auto rest2 = static_cast<float>(1 - settings.beta2);
  const auto keep = static_cast<float>(1 - update.learning_rate * update.weight_decay);
  const auto step = static_cast<float>(update.learning_rate / correction1);
  const auto root = static_cast<float>(1 / std::sqrt(correction2));
  const auto epsilon = static_cast<float>(settings.epsilon);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const float g = scale * grad[i];
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    w[i] = keep * w[i] - step * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

}  // namespace moeloom
