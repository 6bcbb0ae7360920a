#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "elementwise/swiglu_rows.hpp"

namespace moeloom {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();  // of a gate

struct ValueSlope {
  double value;
  double slope;
};

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

ValueSlope silu(double x) {
  return {x * sigmoid(x), sigmoid(x) * (1 + x * sigmoid(-x))};
}

/// Hendrycks & Gimpel 2016: x Phi(x), and with (1 + tanh(u)) / 2 = sigmoid(2u) for Phi.
ValueSlope gelu(double x) {
  const double phi = std::erfc(-x / std::numbers::sqrt2) / 2;
  return {x * phi, phi + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)};
}

ValueSlope gelu_tanh(double x) {
  const double c = std::clamp(x, -30.0, 30.0);  // beyond, Phi is 0 or 1 to the last bit
  const double two_u = std::sqrt(8 / std::numbers::pi) * (c + 0.044715 * c * c * c);
  const double two_u_slope = std::sqrt(8 / std::numbers::pi) * (1 + 3 * 0.044715 * c * c);
  return {x * sigmoid(two_u), sigmoid(two_u) * (1 + c * two_u_slope * sigmoid(-two_u))};
}

ValueSlope value_slope(Activation act, double x) {
  switch (act) {
    case Activation::kSilu:
      return silu(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kGelu:
      return gelu(x);
  }
  return {};
}

/// A row of the gate in double, and how it was cut off.
struct Gate {
  std::vector<double> values;
  std::vector<double> deviations;  // (gate - mean) / deviation; zeros where every gate is the same
  double z = 0;
};

/// The gate itself without sparsity; else g' = max(0, g - (mean + z deviation)).
Gate cut_gate(const GatedActivation& activation, const float* gate, Index width) {
  Gate cut{.values = {gate, gate + width},
           .deviations = std::vector<double>(static_cast<std::size_t>(width))};
  if (activation.sparsity == 0) return cut;
  cut.z = swiglu::normal_quantile(activation.sparsity);
  double mean = 0, variance = 0;
  for (const double g : cut.values) mean += g / static_cast<double>(width);
  for (const double g : cut.values) variance += (g - mean) * (g - mean) / static_cast<double>(width);
  const double deviation = std::sqrt(variance);
  for (std::size_t j = 0; j < cut.values.size(); ++j) {
    if (deviation > 0) cut.deviations[j] = (cut.values[j] - mean) / deviation;
    cut.values[j] = std::max(0.0, cut.values[j] - (mean + cut.z * deviation));
  }
  return cut;
}

/// From the gradients of g' to those of g: d mean / d g_j = 1/F, d deviation / d g_j = deviations_j / F.
void uncut_gradient(const Gate& cut, std::vector<double>& d_gate) {
  const double width = static_cast<double>(d_gate.size());
  double sum = 0;
  for (std::size_t j = 0; j < d_gate.size(); ++j) {
    if (cut.values[j] <= 0) d_gate[j] = 0;
    sum += d_gate[j];
  }
  for (std::size_t j = 0; j < d_gate.size(); ++j) d_gate[j] -= sum / width * (1 + cut.z * cut.deviations[j]);
}

/// An input kept in [low, limit], and whether it was there.
struct Kept {
  double value;
  double slope;
};
Kept keep(double x, double low, double limit) {
  if (x < low || x > limit) return {std::clamp(x, low, limit), 0};
  return {x, 1};
}

/// act(alpha gate) / alpha and its slope.
ValueSlope value_slope(const GatedActivation& activation, double gate) {
  const ValueSlope act = value_slope(activation.act, activation.alpha * gate);
  return {act.value / activation.alpha, act.slope};
}

/// What a row's scale multiplies, and 1 for the other.
struct Scales {
  double inputs = 1;
  double result = 1;
};
Scales scales_of(const GatedActivation& activation, std::span<const float> row_scale, Index row) {
  const double scale = swiglu::scale_of(row_scale, row);
  return activation.scale_on == RowScaleOn::kInputs ? Scales{scale, 1} : Scales{1, scale};
}

void forward(const GatedActivation& activation, ConstMatrixView gate_up, std::span<const float> row_scale,
             Rows activated) {
  swiglu::check_forward(activation, gate_up, row_scale, activated);
  const Index width = gate_up.cols / 2;
  const double limit = activation.limit;
  for (Index i = 0; i < gate_up.rows; ++i) {
    const Gate gate = cut_gate(activation, gate_up.row(i), width);
    const auto [inputs, result] = scales_of(activation, row_scale, i);
    for (Index j = 0; j < width; ++j) {
      const double up = keep(inputs * gate_up(i, width + j), -limit, limit).value + activation.up_offset;
      const double kept = keep(inputs * gate.values[at(j)], kLowest, limit).value;
      set(activated, i, j, static_cast<float>(result * value_slope(activation, kept).value * up));
    }
  }
}

void backward(const GatedActivation& activation, ConstMatrixView gate_up, std::span<const float> row_scale,
              ConstMatrixView d_activated, const GatedGradients& results) {
  swiglu::check_backward(activation, gate_up, row_scale, d_activated, results);
  const auto& [d_gate_up, d_row_scale, activated] = results;
  const Index width = d_activated.cols;
  const double limit = activation.limit;
  std::vector<double> d_gate(at(width));
  for (Index i = 0; i < gate_up.rows; ++i) {
    const Gate gate = cut_gate(activation, gate_up.row(i), width);
    const auto [inputs, result] = scales_of(activation, row_scale, i);
    double d_scale = 0;
    for (Index j = 0; j < width; ++j) {
      const double plain_gate = gate.values[at(j)], plain_up = gate_up(i, width + j);
      const Kept kept_gate = keep(inputs * plain_gate, kLowest, limit);
      const Kept kept_up = keep(inputs * plain_up, -limit, limit);
      const ValueSlope act = value_slope(activation, kept_gate.value);
      const double up = kept_up.value + activation.up_offset;
      const double grad = d_activated(i, j);
      const double d_scaled_gate = grad * up * act.slope * kept_gate.slope;
      const double d_scaled_up = grad * act.value * kept_up.slope;
      d_scale += activation.scale_on == RowScaleOn::kInputs
                     ? d_scaled_gate * plain_gate + d_scaled_up * plain_up
                     : grad * act.value * up;
      d_gate[at(j)] = inputs * result * d_scaled_gate;
      set(d_gate_up, i, width + j, static_cast<float>(inputs * result * d_scaled_up));
      set(activated, i, j, static_cast<float>(result * act.value * up));
    }
    if (activation.sparsity > 0) uncut_gradient(gate, d_gate);
    for (Index j = 0; j < width; ++j)
      set(d_gate_up, i, j, static_cast<float>(d_gate[static_cast<std::size_t>(j)]));
    if (!d_row_scale.empty()) d_row_scale[static_cast<std::size_t>(i)] = static_cast<float>(d_scale);
  }
}

}  // namespace

SwigluKernel reference_swiglu() {
  return {forward, backward};
}

}  // namespace moeloom
