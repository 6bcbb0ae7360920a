// A router's cap of its logits, and its trained scales of experts: as the formulas say, and whatever ranks
// have the tokens.
#include "moe/routing/router_layer.hpp"

#include <cmath>
#include <numeric>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;
using Doubles = std::vector<double>;

constexpr Index kHidden = 6, kExperts = 5, kTopK = 2, kTokens = 7;
constexpr double kCap = 1.5;

RouterSettings settings_of(std::span<const float> scale) {
  return {.num_experts = kExperts,
          .top_k = kTopK,
          .logit_cap = static_cast<float>(kCap),
          .score = RouterScore::kSigmoid,
          .scaling_factor = 2.5f,
          .expert_scale = scale};
}

Doubles doubles(const Matrix& m) {
  return {m.view().flat().begin(), m.view().flat().end()};
}

/// Capped logits [T, E].
Doubles capped_logits(const Doubles& x, const Doubles& w, const Doubles& bias) {
  Doubles logits;
  for (Index t = 0; t < kTokens; ++t)
    for (Index e = 0; e < kExperts; ++e) {
      double logit = bias[at(e)];
      for (Index d = 0; d < kHidden; ++d) logit += x[at(t * kHidden + d)] * w[at(e * kHidden + d)];
      logits.push_back(kCap * std::tanh(logit / kCap));
    }
  return logits;
}

struct Routed {
  Matrix hidden = random_matrix(kTokens, kHidden, 3), d_hidden{kTokens, kHidden};
  Matrix weight = random_matrix(kExperts, kHidden, 1), d_weight{kExperts, kHidden};
  Matrix bias = random_matrix(1, kExperts, 2), d_bias{1, kExperts};
  Matrix scale = random_matrix(1, kExperts, 4), d_scale{1, kExperts};
  Matrix upstream = random_matrix(kTokens, kTopK, 5), logits;
  Routing routing;
  RouterLayer layer;

  explicit Routed(RouterDType dtype, ExactSums* sums = nullptr, std::span<float> gradient = {})
      : layer({weight,
               d_weight,
               sums,
               bias.view().flat(),
               d_bias.view().flat(),
               {},
               gradient.empty() ? d_scale.view().flat() : gradient},
              settings_of(scale.view().flat()), 0, {}, dtype) {}

  void run(ConstMatrixView x, ConstMatrixView d_weights) {
    layer.forward({.training = true}, x, logits, routing);
    capped = Matrix::copy_of(logits);
    layer.backward({.training = true}, x, routing, d_weights.flat(), {}, logits,
                   d_hidden.view().rows_from(0, x.rows));
  }
  Matrix capped;
};

TEST(CappedRouter, HasTheGradientsOfItsFormulas) {
  for (const RouterDType dtype : {RouterDType::kFp32, RouterDType::kFp64}) {
    Routed routed(dtype);
    routed.run(routed.hidden, routed.upstream);
    Doubles x = doubles(routed.hidden), w = doubles(routed.weight), bias = doubles(routed.bias),
            scale = doubles(routed.scale);
    const Doubles logits = capped_logits(x, w, bias);
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(routed.capped.view().flat()[i], logits[i], 5e-7);
    // <upstream, weights> of the experts that were chosen.
    const auto loss = [&] {
      const Doubles capped = capped_logits(x, w, bias);
      double total = 0;
      for (Index t = 0; t < kTokens; ++t) {
        double sum = 0, along = 0;
        for (Index j = 0; j < kTopK; ++j) {
          const Index e = routed.routing.topk_idx[at(t * kTopK + j)];
          const double score = 1 / (1 + std::exp(-capped[at(t * kExperts + e)]));
          sum += score;
          along += static_cast<double>(routed.upstream.row(t)[j]) * score * scale[at(e)];
        }
        total += 2.5 * along / sum;
      }
      return total;
    };
    const auto expect = [&](Doubles& input, const Matrix& gradient) {
      for (std::size_t i = 0; i < input.size(); ++i) {
        const double kept = std::exchange(input[i], input[i] + 1e-5);
        const double above = loss();
        input[i] = kept - 1e-5;
        const double below = loss();
        input[i] = kept;
        EXPECT_NEAR(gradient.view().flat()[i], (above - below) / 2e-5, 1e-5) << i;
      }
    };
    expect(x, routed.d_hidden);
    expect(w, routed.d_weight);
    expect(bias, routed.d_bias);
    expect(scale, routed.d_scale);
  }
}

TEST(CappedRouter, AddsExactSumsOfItsScalesHoweverTokensAreDealt) {
  const auto sums_of = [](Index tokens_at_once) {
    Matrix gradient(1, kExperts);
    ExactSums sums(gradient.view().flat(), kTokens);
    sums.rows_per_leaf = 1;
    Routed routed(RouterDType::kFp32, &sums, gradient.view().flat());
    for (Index first = 0; first < kTokens; first += tokens_at_once) {
      const Index rows = std::min(tokens_at_once, kTokens - first);
      routed.run(routed.hidden.view().rows_from(first, rows), routed.upstream.view().rows_from(first, rows));
    }
    EXPECT_FALSE(sums.broken());
    return std::vector<std::int64_t>(sums.sums().begin(), sums.sums().end());
  };
  EXPECT_EQ(sums_of(kTokens), sums_of(3));
  EXPECT_NE(sums_of(kTokens), std::vector<std::int64_t>(kExperts));
}

}  // namespace
}  // namespace moeloom
