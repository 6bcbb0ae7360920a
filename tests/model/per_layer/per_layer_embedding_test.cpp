// Per-layer embeddings and what a layer makes of its part, against the formulas in double.
#include "model/per_layer/per_layer_embedding.hpp"

#include "model/per_layer/per_layer_input.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

#include "support/expect_error.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::per_layer {
namespace {

using testing::random_matrix;
using Doubles = std::vector<double>;

constexpr Index kWords = 7, kHidden = 5, kLayers = 3, kWidth = 4, kAll = kLayers * kWidth;
constexpr double kEps = 1e-3;
const std::vector<std::int32_t> kIds = {3, 0, 6, 3, 1};  // one twice, and the padding's
constexpr Index kPadding = 0;

ParameterSpec parameter(const std::string& name, Index rows, Index cols) {
  ParameterSpec spec;
  spec.name = name;
  spec.rows = rows;
  spec.cols = cols;
  spec.is_matrix = cols > 1;
  return spec;
}

Doubles doubles(ConstMatrixView m) {
  return {m.data, m.data + m.size()};
}

/// A norm over rows of `width`.
Doubles normed(const Doubles& x, const Doubles& weight) {
  Doubles y(x.size());
  for (std::size_t row = 0; row < x.size(); row += weight.size()) {
    double squares = 0;
    for (std::size_t j = 0; j < weight.size(); ++j) squares += x[row + j] * x[row + j];
    const double root = std::sqrt(squares / static_cast<double>(weight.size()) + kEps);
    for (std::size_t j = 0; j < weight.size(); ++j) y[row + j] = x[row + j] / root * weight[j];
  }
  return y;
}

/// x [T, in] W^T, W [out, in].
Doubles product(const Doubles& x, const Doubles& w, Index in) {
  Doubles y;
  for (std::size_t t = 0; t < x.size(); t += at(in))
    for (std::size_t row = 0; row < w.size(); row += at(in)) {
      double sum = 0;
      for (std::size_t j = 0; j < at(in); ++j) sum += x[t + j] * w[row + j];
      y.push_back(sum);
    }
  return y;
}

/// The gradient of `loss` by `x`, by central differences.
void expect_gradient(const char* what, Doubles& x, ConstMatrixView gradient,
                     const std::function<double()>& loss) {
  ASSERT_EQ(std::ssize(x), gradient.size()) << what;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = std::exchange(x[i], x[i] + 1e-5);
    const double above = loss();
    x[i] = kept - 1e-5;
    const double below = loss();
    x[i] = kept;
    EXPECT_NEAR(gradient.data[i], (above - below) / 2e-5, 2e-5) << what << " " << i;
  }
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void fill_with_random(ParameterStore& store) {
  std::uint64_t seed = 1;
  for (const Parameter& p : store.parameters())
    copy(random_matrix(p.spec.rows, p.spec.cols, seed++), p.value);
  store.restart_gradients();
}

PerLayerEmbeddingSpec embedding_spec() {
  return {.width = kWidth,
          .layers = kLayers,
          .vocab_size = kWords,
          .embedding_scale = 2,
          .projection_scale = 0.4f,
          .norm = {"model.per_layer_projection_norm.weight", kWidth, {.eps = static_cast<float>(kEps)}}};
}

std::vector<ParameterSpec> embedding_parameters() {
  return {parameter("model.embed_tokens_per_layer.weight", kWords, kAll),
          parameter("model.per_layer_model_projection.weight", kAll, kHidden),
          parameter("model.per_layer_projection_norm.weight", kWidth, 1)};
}

TEST(PerLayerEmbedding, AgreesWithItsFormulaForwardAndBackward) {
  ParameterStore store(embedding_parameters());
  fill_with_random(store);
  const auto grad = [&](Index i) { return store.parameters()[at(i)].grad; };
  const Index tokens = std::ssize(kIds);
  const Matrix h0 = random_matrix(tokens, kHidden, 11), upstream = random_matrix(tokens, kAll, 12);
  PerLayerEmbedding embedding(embedding_spec(), kPadding, store);
  embedding.forward({}, kIds, h0);
  Doubles table = doubles(store.parameters()[0].value), projection = doubles(store.parameters()[1].value),
          weight = doubles(store.parameters()[2].value), x = doubles(h0);
  const auto parts = [&](std::int32_t untrained) {
    Doubles c = product(x, projection, kHidden);
    for (double& each : c) each *= static_cast<double>(0.4f);
    c = normed(c, weight);
    for (Index t = 0; t < tokens; ++t)
      for (Index j = 0; j < kAll; ++j) {
        const std::int32_t id = kIds[at(t)];
        const double of_table = id == untrained ? 0 : table[at(id * kAll + j)];
        c[at(t * kAll + j)] = (c[at(t * kAll + j)] + 2 * of_table) / std::numbers::sqrt2;
      }
    return c;
  };
  const Doubles expected = parts(-1);
  embedding.start_backward();
  for (Index layer = 0; layer < kLayers; ++layer)
    for (Index t = 0; t < tokens; ++t)
      for (Index j = 0; j < kWidth; ++j) {
        EXPECT_NEAR(embedding.of_layer(layer)(t, j), expected[at(t * kAll + layer * kWidth + j)], 2e-6);
        embedding.gradient_of(layer)(t, j) = upstream.row(t)[layer * kWidth + j];
      }
  Matrix d_h0 = Matrix::copy_of(h0);  // is added to
  embedding.backward({}, kIds, h0, d_h0);
  for (Index i = 0; i < d_h0.view().size(); ++i) d_h0.view().data[i] -= h0.view().data[i];
  const auto loss = [&] { return dot(parts(kPadding), doubles(upstream)); };
  expect_gradient("h0", x, d_h0, loss);
  expect_gradient("table", table, grad(0), loss);
  expect_gradient("projection", projection, grad(1), loss);
  expect_gradient("norm", weight, grad(2), loss);
}

TEST(PerLayerEmbedding, LeavesFrozenParametersAloneAndRefusesStrangeIds) {
  std::vector<ParameterSpec> specs = embedding_parameters();
  for (ParameterSpec& spec : specs) spec.frozen = true;
  ParameterStore store(specs);
  PerLayerEmbedding embedding(embedding_spec(), std::nullopt, store);
  const Matrix h0 = random_matrix(2, kHidden, 11);
  const std::vector<std::int32_t> ids = {1, 2}, strange = {1, kWords};
  embedding.forward({}, ids, h0);
  embedding.start_backward();
  for (Index layer = 0; layer < kLayers; ++layer) fill(embedding.gradient_of(layer), 1);
  Matrix d_h0(2, kHidden);
  embedding.backward({}, ids, h0, d_h0);
  EXPECT_THROW(embedding.forward({}, strange, h0), ShapeError);
}

TEST(PerLayerEmbedding, IsCompleteWithTheWordTable) {
  for (const ParameterSpec& spec : embedding_parameters())
    EXPECT_EQ(part_of_backward(spec), kEmbeddingPart) << spec.name;
  EXPECT_EQ(part_of_backward(parameter("model.norm.weight", 3, 1)), kHeadPart);
}

TEST(PerLayerInput, AgreesWithItsFormulaForwardAndBackward) {
  ParameterStore store({parameter("l.per_layer_input_gate.weight", kWidth, kHidden),
                        parameter("l.per_layer_projection.weight", kHidden, kWidth),
                        parameter("l.norm.weight", kHidden, 1)});
  fill_with_random(store);
  const Index tokens = 6;
  PerLayerInput input({.prefix = "l.",
                       .hidden_size = kHidden,
                       .width = kWidth,
                       .act = Activation::kSilu,
                       .norm = {"l.norm.weight", kHidden, {.eps = static_cast<float>(kEps)}}},
                      store);
  const Matrix start = random_matrix(tokens, kHidden, 21), u = random_matrix(tokens, kWidth, 22),
               upstream = random_matrix(tokens, kHidden, 23);
  Doubles h = doubles(start), part = doubles(u), gate = doubles(store.parameters()[0].value),
          projection = doubles(store.parameters()[1].value), weight = doubles(store.parameters()[2].value);
  const auto output = [&] {
    Doubles activated = product(h, gate, kHidden);
    for (std::size_t i = 0; i < activated.size(); ++i)
      activated[i] *= part[i] / (1 + std::exp(-activated[i]));
    Doubles sum = normed(product(activated, projection, kWidth), weight);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += h[i];
    return sum;
  };
  PerLayerInputWorkspace workspace;
  Matrix hidden = Matrix::copy_of(start), d_hidden = Matrix::copy_of(upstream), d_u(tokens, kWidth);
  input.forward({}, u, hidden, workspace);
  const Doubles expected = output();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(hidden.view().flat()[i], expected[i], 2e-6);
  input.backward({}, d_hidden, d_u, workspace);
  const auto loss = [&] { return dot(output(), doubles(upstream)); };
  expect_gradient("hidden", h, d_hidden, loss);
  expect_gradient("u", part, d_u, loss);
  expect_gradient("gate", gate, store.parameters()[0].grad, loss);
  expect_gradient("projection", projection, store.parameters()[1].grad, loss);
  expect_gradient("norm", weight, store.parameters()[2].grad, loss);
}

}  // namespace
}  // namespace moeloom::per_layer
