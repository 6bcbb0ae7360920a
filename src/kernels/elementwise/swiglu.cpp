#include "moeloom/kernels/elementwise/swiglu.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "elementwise/swiglu_rows.hpp"

namespace moeloom {

std::optional<Activation> activation_named(std::string_view hidden_act) {
  if (hidden_act == "silu" || hidden_act == "swish") return Activation::kSilu;
  if (hidden_act == "gelu_pytorch_tanh" || hidden_act == "gelu_new") return Activation::kGeluTanh;
  if (hidden_act == "gelu") return Activation::kGelu;
  return std::nullopt;
}

void check_settings(const GatedActivation& activation) {
  require(activation.sparsity >= 0 && activation.sparsity < 1, "sparsity must be at least 0 and below 1");
  require(activation.alpha > 0 && activation.limit > 0, "alpha and limit must be above 0");
  require(activation.sparsity == 0 || activation.takes_inputs_as_they_are(),
          "sparsity goes with no scale of the inputs, no limit, no alpha and no offset");
}

namespace swiglu {

void check_forward(const GatedActivation& activation, ConstMatrixView gate_up,
                   std::span<const float> row_scale, ConstRows activated) {
  check_settings(activation);
  require(activated.rows() == gate_up.rows, "activated needs one row for each row of gate_up");
  require(gate_up.cols == 2 * activated.cols(), "gate_up needs twice the columns of activated");
  require(row_scale.empty() || static_cast<Index>(row_scale.size()) == gate_up.rows,
          "row_scale needs one number for each row of gate_up, or none");
}

void check_backward(const GatedActivation& activation, ConstMatrixView gate_up,
                    std::span<const float> row_scale, ConstMatrixView d_activated,
                    const GatedGradients& results) {
  const ConstRows d_gate_up = results.d_gate_up;
  check_forward(activation, gate_up, row_scale, results.activated);
  require(d_gate_up.rows() == gate_up.rows && d_gate_up.cols() == gate_up.cols,
          "d_gate_up needs the shape of gate_up");
  check_forward(activation, gate_up, row_scale, d_activated);
  require(results.d_row_scale.size() == row_scale.size(), "d_row_scale needs as many numbers as row_scale");
}

double normal_quantile(double probability) {
  const double tail = std::min(probability, 1 - probability);  // 1 - tail would round a small one away
  // Newton from the middle: right of it the distribution is concave, so no step passes the root.
  double z = 0;
  for (double step = 1; step > 1e-15 * (1 + z);) {
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    step = (std::erfc(z / std::numbers::sqrt2) / 2 - tail) / density;
    z += step;
  }
  return probability < 0.5 ? -z : z;
}

}  // namespace swiglu
}  // namespace moeloom
