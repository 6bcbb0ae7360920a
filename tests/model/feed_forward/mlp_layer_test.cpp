#include "model/feed_forward/mlp_layer.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;
using Doubles = std::vector<double>;

constexpr Index kWidth = 9;
constexpr Index kInner = 7;
constexpr Index kTokens = 5;

std::vector<ParameterSpec> parameters(bool bias) {
  const auto spec = [](const std::string& name, Index rows, Index cols) {
    ParameterSpec s;
    s.name = "mlp." + name;
    s.rows = rows;
    s.cols = cols;
    return s;
  };
  std::vector<ParameterSpec> specs = {spec("gate_up_proj.weight", 2 * kInner, kWidth),
                                      spec("down_proj.weight", kWidth, kInner)};
  if (bias) {
    specs.push_back(spec("gate_up_proj.bias", 1, 2 * kInner));
    specs.push_back(spec("down_proj.bias", 1, kWidth));
  }
  return specs;
}

struct MlpCase {
  bool bias = false;
  Activation act = Activation::kSilu;
};

MlpSpec mlp_spec(bool bias, Activation act = Activation::kSilu) {
  MlpSpec spec;
  spec.prefix = "mlp.";
  spec.hidden_size = kWidth;
  spec.width = kInner;
  spec.bias = bias;
  spec.activation.act = act;
  return spec;
}

double activated(Activation act, double x) {
  if (act == Activation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// down(act(gate x) * up x) in double; values in the order of parameters().
Doubles mlp_reference(Activation act, const std::vector<Doubles>& values, const Doubles& x) {
  const bool bias = values.size() > 2;
  Doubles y(x.size());
  for (Index t = 0; t < kTokens; ++t) {
    Doubles gate_up(2 * kInner);
    for (Index i = 0; i < 2 * kInner; ++i) {
      gate_up[at(i)] = bias ? values[2][at(i)] : 0.0;
      for (Index j = 0; j < kWidth; ++j)
        gate_up[at(i)] += values[0][at(i * kWidth + j)] * x[at(t * kWidth + j)];
    }
    for (Index i = 0; i < kWidth; ++i) {
      double& sum = y[at(t * kWidth + i)] = bias ? values[3][at(i)] : 0.0;
      for (Index j = 0; j < kInner; ++j) {
        sum += values[1][at(i * kInner + j)] * activated(act, gate_up[at(j)]) * gate_up[at(kInner + j)];
      }
    }
  }
  return y;
}

class MlpLayerWith : public ::testing::TestWithParam<MlpCase> {};

TEST_P(MlpLayerWith, AddsItsDefinitionAndHasItsGradients) {
  const auto [bias, act] = GetParam();
  ParameterStore store(parameters(bias));
  std::vector<Doubles> values;
  for (const Parameter& p : store.parameters()) {
    copy(random_matrix(p.spec.rows, p.spec.cols, values.size() + 1, 0.7), p.value);
    values.emplace_back(p.value.data, p.value.data + p.value.size());
  }
  const Matrix input = random_matrix(kTokens, kWidth, 20);
  const Matrix d_output = random_matrix(kTokens, kWidth, 21);
  Doubles x(input.view().data, input.view().data + input.view().size());

  MlpLayer layer(mlp_spec(bias, act), store);
  MlpWorkspace workspace;
  const KernelTable kernels;
  Matrix output(kTokens, kWidth), d_input(kTokens, kWidth);
  fill(output, 1.0f);
  layer.forward(kernels, input, output, workspace);
  layer.backward(kernels, input, d_output, d_input, workspace);

  const Doubles expected = mlp_reference(act, values, x);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(output.view().data[i], 1 + expected[i], 1e-5 * (1 + std::abs(expected[i])));

  const auto expect = [&](Doubles& of, const float* got) {
    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const auto objective = [&](double shift) {
        const double kept = of[i];
        of[i] = kept + shift;
        const Doubles y = mlp_reference(act, values, x);
        of[i] = kept;
        return std::inner_product(y.begin(), y.end(), d_output.view().data, 0.0);
      };
      const double slope = (objective(kStep) - objective(-kStep)) / (2 * kStep);
      EXPECT_NEAR(got[i], slope, 2e-5 * (1 + std::abs(slope)));
    }
  };
  expect(x, d_input.view().data);
  for (std::size_t p = 0; p < values.size(); ++p) expect(values[p], store.parameters()[p].grad.data);
}

INSTANTIATE_TEST_SUITE_P(All, MlpLayerWith,
                         ::testing::Values(MlpCase{}, MlpCase{true}, MlpCase{false, Activation::kGeluTanh}));

TEST(MlpLayer, DoesNothingWithoutTokens) {
  ParameterStore store(parameters(true));
  MlpLayer layer(mlp_spec(true), store);
  MlpWorkspace workspace;
  Matrix nothing(0, kWidth);
  EXPECT_NO_THROW(layer.forward({}, nothing, nothing, workspace));
  EXPECT_NO_THROW(layer.backward({}, nothing, nothing, nothing, workspace));
}

TEST(MlpLayer, RefusesWeightsThatDoNotHaveItsShape) {
  const ParameterStore store(parameters(false));
  MlpSpec wider = mlp_spec(false);
  wider.width = kInner + 1;
  EXPECT_THROW(MlpLayer(wider, store), ShapeError);
  EXPECT_THROW(MlpLayer(mlp_spec(true), store), ShapeError) << "there is no bias";
}

}  // namespace
}  // namespace moeloom
