#include "kernels/delta_gates.hpp"

#include "moeloom/base/errors.hpp"

#include "elementwise/elementwise_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Case {
  explicit Case(Index tokens)
      : b(random_matrix(tokens, 3, 1, 2.0)),
        a(random_matrix(tokens, 3, 2, 3.0)),
        a_log(random_vector(3, 3)),
        dt_bias(random_vector(3, 4)),
        d_beta(random_matrix(tokens, 3, 5)),
        d_decay(random_matrix(tokens, 3, 6)) {}
  DeltaGates gates() const { return {a_log, dt_bias}; }

  Matrix b, a;
  std::vector<float> a_log, dt_bias;
  Matrix d_beta, d_decay;
};

struct Result {
  Matrix beta, decay, d_b, d_a;
  std::vector<float> d_a_log, d_dt_bias;
};
Result run(const Case& c) {
  const Index rows = c.b.rows();
  Result r{Matrix(rows, 3), Matrix(rows, 3),       Matrix(rows, 3),
           Matrix(rows, 3), std::vector<float>(3), std::vector<float>(3)};
  delta_gates_forward(c.gates(), c.b, c.a, r.beta, r.decay);
  delta_gates_backward(c.gates(), c.b, c.a, c.d_beta, c.d_decay, {r.d_b, r.d_a, r.d_a_log, r.d_dt_bias});
  return r;
}

TEST(DeltaGates, AgreeWithTheFormulasAndTheirCentralDifferences) {
  for (const Index tokens : {0, 1, 7, 300}) {
    const Case c(tokens);
    const Result r = run(c);
    auto b = doubles_of(c.b), a = doubles_of(c.a), a_log = doubles_of(row_view(c.a_log)),
         dt_bias = doubles_of(row_view(c.dt_bias));
    const auto d_beta = doubles_of(c.d_beta), d_decay = doubles_of(c.d_decay);
    const auto beta = [&](std::size_t i) { return 1 / (1 + std::exp(-b[i])); };
    const auto decay = [&](std::size_t i) {
      return -std::exp(a_log[i % 3]) * std::log1p(std::exp(a[i] + dt_bias[i % 3]));
    };
    const auto loss = [&] {
      double sum = 0;
      for (std::size_t i = 0; i < b.size(); ++i) sum += beta(i) * d_beta[i] + decay(i) * d_decay[i];
      return sum;
    };
    for (std::size_t i = 0; i < b.size(); ++i) {
      EXPECT_NEAR(r.beta.view().flat()[i], beta(i), 1e-6);
      EXPECT_NEAR(r.decay.view().flat()[i], decay(i), 2e-6 * (1 - decay(i)));
    }
    EXPECT_LE(worst_error(doubles_of(row_view(r.d_a_log)), central_differences(a_log, loss)), 4e-6);
    EXPECT_LE(worst_error(doubles_of(row_view(r.d_dt_bias)), central_differences(dt_bias, loss)), 4e-6);
    if (tokens > 7) continue;
    EXPECT_LE(worst_error(doubles_of(r.d_b), central_differences(b, loss)), 4e-6);
    EXPECT_LE(worst_error(doubles_of(r.d_a), central_differences(a, loss)), 4e-6);
  }
}

TEST(DeltaGates, StayFiniteFarOut) {
  Case c(2);
  for (const Index h : {0, 1, 2})
    for (const Index t : {0, 1}) c.a.row(t)[h] = c.b.row(t)[h] = t == 0 ? 200.0f : -200.0f;
  const Result r = run(c);
  for (const Index h : {0, 1, 2}) {
    EXPECT_EQ(r.beta.row(0)[h], 1.0f);
    EXPECT_EQ(r.beta.row(1)[h], 0.0f);
    EXPECT_FLOAT_EQ(r.decay.row(0)[h], -std::exp(c.a_log[at(h)]) * (200 + c.dt_bias[at(h)]));
    EXPECT_EQ(r.decay.row(1)[h], 0.0f);
  }
  for (const float d : r.d_a.view().flat()) EXPECT_TRUE(std::isfinite(d));
}

TEST(DeltaGates, GiveTheSameBitsOnAnyThreadsAndOverTheirInputs) {
  const Case c(600);
  const Result one = on_threads(1, [&] { return run(c); }), three = on_threads(3, [&] { return run(c); });
  EXPECT_EQ(bits_of(one.d_a), bits_of(three.d_a));
  EXPECT_EQ(one.d_a_log, three.d_a_log);
  EXPECT_EQ(one.d_dt_bias, three.d_dt_bias);
  Matrix b = Matrix::copy_of(c.b), a = Matrix::copy_of(c.a), d_b = Matrix::copy_of(c.d_beta),
         d_a = Matrix::copy_of(c.d_decay);
  std::vector<float> d_a_log(3), d_dt_bias(3);
  delta_gates_forward(c.gates(), b, a, b, a);
  delta_gates_backward(c.gates(), c.b, c.a, d_b, d_a, {d_b, d_a, d_a_log, d_dt_bias});
  EXPECT_EQ(bits_of(b), bits_of(one.beta));
  EXPECT_EQ(bits_of(a), bits_of(one.decay));
  EXPECT_EQ(bits_of(d_b), bits_of(one.d_b));
  EXPECT_EQ(bits_of(d_a), bits_of(one.d_a));
}

TEST(DeltaGates, RefuseShapesThatDoNotFit) {
  const Case c(2);
  Matrix narrow(2, 2), good(2, 3);
  std::vector<float> three(3), two(2);
  EXPECT_THROW(delta_gates_forward(c.gates(), c.b, narrow, good, good), ShapeError);
  EXPECT_THROW(delta_gates_forward({c.a_log, two}, c.b, c.a, good, good), ShapeError);
  EXPECT_THROW(delta_gates_backward(c.gates(), c.b, c.a, c.d_beta, c.d_decay, {good, good, two, three}),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
