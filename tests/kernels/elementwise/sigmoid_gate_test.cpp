#include "kernels/elementwise/sigmoid_gate.hpp"

#include "moeloom/base/errors.hpp"

#include <numeric>

#include "elementwise/elementwise_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

// A few units in the last place of the sigmoid and of two products.
TEST(SigmoidGate, MultipliesByTheSigmoidAndHasItsGradients) {
  for (const Index rows : {0, 1, 5, 700})
    for (const Index cols : {1, 16, 37}) {
      const GappedMatrix x(rows, cols, 1), gate(rows, cols, 2, 4.0), upstream(rows, cols, 3);
      GappedMatrix y(rows, cols, 4), dx(rows, cols, 3), d_gate(rows, cols, 6);
      sigmoid_gate_forward(x, gate, y.view());
      sigmoid_gate_backward(dx, x, gate, dx, d_gate);  // over the gradient that it reads
      auto values = doubles_of(x), gates = doubles_of(gate);
      const auto by_definition = [&] {
        std::vector<double> out;
        for (std::size_t i = 0; i < values.size(); ++i) out.push_back(values[i] / (1 + std::exp(-gates[i])));
        return out;
      };
      EXPECT_LE(worst_error(doubles_of(y), by_definition()), 1e-6);
      EXPECT_TRUE(y.gap_is_untouched() && dx.gap_is_untouched() && d_gate.gap_is_untouched());
      if (rows > 10) continue;  // of two evaluations a number
      const auto dy = doubles_of(upstream);
      const auto loss = [&] {
        const auto out = by_definition();
        return std::inner_product(out.begin(), out.end(), dy.begin(), 0.0);
      };
      EXPECT_LE(worst_error(doubles_of(dx), central_differences(values, loss)), 1e-6);
      EXPECT_LE(worst_error(doubles_of(d_gate), central_differences(gates, loss)), 1e-6);
    }
}

TEST(SigmoidGate, WritesBf16AsABf16ProductWouldRoundIt) {
  const Matrix x = random_matrix(7, 37, 1), gate = random_matrix(7, 37, 2);
  Matrix plain(7, 37);
  RowMemory memory;
  const Rows y = memory.reshape_uninitialised(DType::kBF16, 7, 37);
  sigmoid_gate_forward(x, gate, plain);
  sigmoid_gate_forward(x, gate, y);
  EXPECT_EQ(half_bits_of(y), rounded_bits_of(plain));
}

TEST(SigmoidGate, RefusesAGateOfAnotherShape) {
  Matrix x(2, 4), narrow(2, 3);
  EXPECT_THROW(sigmoid_gate_forward(x, narrow, x), ShapeError);
  EXPECT_THROW(sigmoid_gate_forward(x, x, narrow), ShapeError);
  EXPECT_THROW(sigmoid_gate_backward(x, x, x, x, narrow), ShapeError);
}

}  // namespace
}  // namespace moeloom
