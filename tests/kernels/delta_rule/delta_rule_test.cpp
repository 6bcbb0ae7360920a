#include "kernels/delta_rule.hpp"

#include "moeloom/base/errors.hpp"

#include <limits>

#include "delta_rule/delta_rule_testing.hpp"
#include "elementwise/elementwise_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// Lengths around a chunk of 64, heads of odd sizes and of panels, groups, segments.
const std::vector<DeltaCase> kCases = {
    {1, 1, 1, 1, {0, 1}},       {1, 1, 8, 6, {0, 63}},        {2, 2, 8, 6, {0, 64}},
    {1, 3, 8, 6, {0, 65}},      {2, 4, 24, 40, {0, 200}},     {1, 2, 32, 32, {0, 1, 2, 66, 70, 200}},
    {1, 1, 128, 128, {0, 130}}, {1, 2, 33, 129, {0, 75, 76}}, {2, 2, 16, 8, {0, 0, 12, 12}},
};

std::string text_of(const DeltaCase& c) {
  return std::to_string(c.tokens()) + " tokens, heads " + std::to_string(c.key_heads) + '/' +
         std::to_string(c.value_heads) + ", sizes " + std::to_string(c.key_dim) + '/' +
         std::to_string(c.value_dim);
}

double weighed(const std::vector<double>& x, const std::vector<float>& by) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * static_cast<double>(by[i]);
  return sum;
}

/// d loss / d inputs by central differences of the recurrence, at every n-th number of each.
struct Slopes {
  std::vector<std::size_t> places;
  std::vector<double> values;
};
Slopes slopes_of(const DeltaCase& c, DeltaTensors<double>& in, std::vector<double>& of,
                 const std::vector<float>& d_output, const std::vector<float>& d_final) {
  constexpr double kStep = 1e-5;
  constexpr std::size_t kPlaces = 40;
  const DeltaRecurrence recurrence(c);
  const auto loss = [&] {
    const DeltaResult r = recurrence.run(in);
    return weighed(r.output, d_output) + weighed(r.final_state, d_final);
  };
  Slopes slopes;
  for (std::size_t i = 0; i < of.size(); i += 1 + of.size() / kPlaces) {
    const double kept = of[i];
    of[i] = kept + kStep;
    const double above = loss();
    of[i] = kept - kStep;
    slopes.values.push_back((above - loss()) / (2 * kStep));
    slopes.places.push_back(i);
    of[i] = kept;
  }
  return slopes;
}

// The golden data's tolerances for float32: 1e-5 of outputs and 2e-5 of gradients.
TEST(DeltaRule, AgreesWithTheRecurrenceAtAnyLengthAndHeadSize) {
  for (const DeltaCase& c : kCases) {
    const DeltaTensors<float> in = random_delta_inputs(c, 7);
    const std::vector<float> d_output(in[kValue].size()), d_final(in[kInitial].size());
    const DeltaRun run = run_delta_rule(c, in, d_output, d_final);
    const DeltaResult truth = DeltaRecurrence(c).run(widened(in));
    EXPECT_LE(worst_error(doubles_of(run.output), truth.output), 1e-5) << text_of(c);
    EXPECT_LE(worst_error(doubles_of(run.final_state), truth.final_state), 1e-5) << text_of(c);
  }
}

TEST(DeltaRule, HasTheGradientsOfTheRecurrence) {
  for (const DeltaCase& c : kCases) {
    const DeltaTensors<float> in = random_delta_inputs(c, 11);
    const std::vector<float> d_output = random_vector(static_cast<Index>(in[kValue].size()), 3);
    const std::vector<float> d_final = random_vector(static_cast<Index>(in[kInitial].size()), 4);
    const DeltaRun run = run_delta_rule(c, in, d_output, d_final);
    DeltaTensors<double> wide = widened(in);
    for (std::size_t which = 0; which < kDeltaInputs; ++which) {
      const Slopes slopes = slopes_of(c, wide, wide[which], d_output, d_final);
      std::vector<double> got;
      for (const std::size_t place : slopes.places)
        got.push_back(static_cast<double>(run.gradients[which][place]));
      EXPECT_LE(worst_error(got, slopes.values), 2e-5) << text_of(c) << ": " << kDeltaInputNames[which];
    }
  }
}

TEST(DeltaRule, GivesTheSameBitsOnAnyThreads) {
  const DeltaCase c{3, 6, 40, 24, {0, 100, 101, 230}};
  const DeltaTensors<float> in = random_delta_inputs(c, 21);
  const auto run = [&] { return run_delta_rule(c, in, in[kValue], in[kInitial]); };
  const DeltaRun one = on_threads(1, run), three = on_threads(3, run);
  EXPECT_EQ(bits_of(one.output), bits_of(three.output));
  EXPECT_EQ(bits_of(one.delta), bits_of(three.delta));
  EXPECT_EQ(bits_of(one.final_state), bits_of(three.final_state));
  EXPECT_EQ(one.gradients, three.gradients);
}

TEST(DeltaRule, ASegmentIsAsIfItWereAlone) {
  const DeltaCase both{2, 4, 16, 12, {0, 70, 111}}, alone{2, 4, 16, 12, {0, 41}};
  const DeltaTensors<float> in = random_delta_inputs(both, 31);
  DeltaTensors<float> second;
  for (std::size_t i = 0; i < kInitial; ++i) {
    const std::size_t row = in[i].size() / 111;
    second.emplace_back(in[i].begin() + static_cast<std::ptrdiff_t>(70 * row), in[i].end());
  }
  second.emplace_back(in[kInitial].begin() + static_cast<std::ptrdiff_t>(in[kInitial].size() / 2),
                      in[kInitial].end());
  const DeltaRun together = run_delta_rule(both, in, in[kValue], in[kInitial]);
  const DeltaRun apart = run_delta_rule(alone, second, second[kValue], second[kInitial]);
  EXPECT_EQ(bits_of(together.output.view().rows_from(70, 41)), bits_of(apart.output));
  for (std::size_t i = 0; i < kDeltaInputs; ++i) {
    const auto& all = together.gradients[i];
    EXPECT_TRUE(std::equal(apart.gradients[i].rbegin(), apart.gradients[i].rend(), all.rbegin()))
        << kDeltaInputNames[i];
  }
}

TEST(DeltaRule, GoesOnFromTheStateThatItLeft) {
  const DeltaCase whole{1, 2, 16, 12, {0, 150}}, first{1, 2, 16, 12, {0, 90}}, rest{1, 2, 16, 12, {0, 60}};
  const DeltaTensors<float> in = random_delta_inputs(whole, 41);
  const DeltaRun all = run_delta_rule(whole, in, in[kValue], in[kInitial]);
  DeltaTensors<float> head = in, tail = in;
  for (std::size_t i = 0; i < kInitial; ++i) {
    const auto cut = static_cast<std::ptrdiff_t>(in[i].size() / 150 * 90);
    head[i].resize(static_cast<std::size_t>(cut));
    tail[i].erase(tail[i].begin(), tail[i].begin() + cut);
  }
  const DeltaRun begun = run_delta_rule(first, head, head[kValue], head[kInitial]);
  const auto state = begun.final_state.view().flat();
  tail[kInitial].assign(state.begin(), state.end());
  const DeltaRun ended = run_delta_rule(rest, tail, tail[kValue], tail[kInitial]);
  EXPECT_LE(worst_error(doubles_of(ended.output), doubles_of(all.output.view().rows_from(90, 60))), 1e-5);
  EXPECT_LE(worst_error(doubles_of(ended.final_state), doubles_of(all.final_state)), 1e-5);
}

TEST(DeltaRule, DecodesByTheRecurrence) {
  for (const DeltaCase& c : {DeltaCase{2, 4, 8, 6, {0, 9}}, DeltaCase{1, 1, 128, 128, {0, 70}}}) {
    const DeltaTensors<float> in = random_delta_inputs(c, 51);
    const DeltaResult truth = DeltaRecurrence(c).run(widened(in));
    Matrix state = Matrix::copy_of({in[kInitial].data(), c.states(), c.key_dim * c.value_dim});
    Matrix output(c.tokens(), c.value_heads * c.value_dim);
    const DeltaRuleInputs all = delta_views(c, in);
    for (Index t = 0; t < c.tokens(); ++t)
      delta_rule_step(c.shape(),
                      {all.query.rows_from(t, 1), all.key.rows_from(t, 1), all.value.rows_from(t, 1),
                       all.log_decay.rows_from(t, 1), all.beta.rows_from(t, 1)},
                      state, output.view().rows_from(t, 1));
    EXPECT_LE(worst_error(doubles_of(output), truth.output), 1e-5) << text_of(c);
    EXPECT_LE(worst_error(doubles_of(state), truth.final_state), 1e-5) << text_of(c);
  }
}

// A head that keeps nothing: its gradient by log_decay is as small as what it keeps, not rounding noise.
TEST(DeltaRule, TheGradientByAStrongDecayIsSmall) {
  const DeltaCase c{1, 1, 16, 16, {0, 130}};
  DeltaTensors<float> in = random_delta_inputs(c, 61);
  std::fill(in[kLogDecay].begin(), in[kLogDecay].end(), -60.0f);
  const DeltaRun run = run_delta_rule(c, in, in[kValue], in[kInitial]);
  for (const float d : run.gradients[kLogDecay]) EXPECT_LT(std::abs(d), 1e-20f);
}

TEST(DeltaRule, ADecayMayBeMinusInfinity) {
  const DeltaCase c{1, 1, 8, 8, {0, 70}};
  DeltaTensors<float> in = random_delta_inputs(c, 71);
  for (const std::size_t t : {0u, 5u, 6u, 66u}) in[kLogDecay][t] = -std::numeric_limits<float>::infinity();
  const DeltaRun run = run_delta_rule(c, in, in[kValue], in[kInitial]);
  const DeltaResult truth = DeltaRecurrence(c).run(widened(in));
  EXPECT_LE(worst_error(doubles_of(run.output), truth.output), 1e-5);
  for (const auto& gradient : run.gradients)
    for (const float d : gradient) EXPECT_TRUE(std::isfinite(d));
}

TEST(DeltaRule, MayWriteOverItsInputs) {
  const DeltaCase c{2, 4, 16, 12, {0, 70, 111}};
  const DeltaTensors<float> in = random_delta_inputs(c, 81);
  const DeltaRun apart = run_delta_rule(c, in, in[kValue], in[kInitial]);
  DeltaTensors<float> over = in;
  const auto view = [&](DeltaInput which) {
    return MatrixView(over[which].data(), 111, static_cast<Index>(over[which].size()) / 111);
  };
  const MatrixView states(over[kInitial].data(), c.states(), c.key_dim * c.value_dim);
  const ConstMatrixView initial(in[kInitial].data(), states.rows, states.cols);
  const DeltaRuleInputs inputs = delta_views(c, over);
  Matrix output(111, c.value_heads * c.value_dim);
  delta_rule_forward(c.shape(), inputs, states, output, view(kValue), states);
  EXPECT_EQ(bits_of(output), bits_of(apart.output));
  EXPECT_EQ(bits_of(view(kValue)), bits_of(apart.delta));
  EXPECT_EQ(bits_of(states), bits_of(apart.final_state));
  delta_rule_backward(c.shape(), {inputs, view(kValue), initial}, {in[kValue].data(), 111, 48}, initial,
                      {view(kQuery), view(kKey), view(kValue), view(kLogDecay), view(kBeta), states});
  EXPECT_EQ(over, apart.gradients);
}

TEST(DeltaRule, RefusesShapesThatDoNotFit) {
  const DeltaCase c{1, 2, 4, 4, {0, 5}};
  const DeltaTensors<float> in = random_delta_inputs(c, 1);
  const DeltaRuleInputs inputs = delta_views(c, in);
  Matrix y(5, 8), narrow(5, 4), states(2, 16);
  EXPECT_THROW(delta_rule_forward(c.shape(), inputs, {}, narrow, y, {}), ShapeError);
  EXPECT_THROW(delta_rule_forward(c.shape(), inputs, {}, y, narrow, {}), ShapeError);
  EXPECT_THROW(delta_rule_forward(c.shape(), inputs, narrow, y, y, {}), ShapeError);
  EXPECT_THROW(delta_rule_forward(c.shape(), inputs, {}, y, y, narrow), ShapeError);
  const DeltaCase longer{1, 2, 4, 4, {0, 6}}, uneven{2, 3, 2, 4, {0, 5}}, falling{1, 2, 4, 4, {0, 6, 5}};
  for (const DeltaCase& wrong : {longer, uneven, falling})
    EXPECT_THROW(delta_rule_forward(wrong.shape(), inputs, {}, y, y, {}), ShapeError);
  const DeltaRuleGradients short_beta{narrow, narrow, y, Matrix(5, 2), Matrix(5, 1), {}};
  EXPECT_THROW(delta_rule_backward(c.shape(), {inputs, y, {}}, y, {}, short_beta), ShapeError);
  EXPECT_THROW(delta_rule_step(c.shape(), inputs, states, y), ShapeError);
}

// 6 n dk dv + 2 n^2 dv a value head and 2 n^2 dk a key head, chunk by chunk.
TEST(DeltaRule, CountsFlopsByChunk) {
  const DeltaCase c{1, 2, 3, 5, {0, 65}};
  const double whole = 65 * 3 * 5, squares = 64 * 64 + 1;
  EXPECT_EQ(delta_rule_forward_flops(c.shape()), 2 * (6 * whole + 2 * squares * 5) + 2 * squares * 3);
  EXPECT_EQ(delta_rule_backward_flops(c.shape()), 2 * (14 * whole + 4 * squares * 5) + 6 * squares * 3);
}

}  // namespace
}  // namespace moeloom
