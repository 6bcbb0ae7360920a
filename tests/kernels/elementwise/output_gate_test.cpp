#include "kernels/elementwise/output_gate.hpp"

#include "moeloom/base/errors.hpp"

#include <numeric>

#include "elementwise/elementwise_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

constexpr GateFunction kFunctions[] = {GateFunction::kSigmoid, GateFunction::kSoftplus};

double by_definition(GateFunction function, double gate) {
  return function == GateFunction::kSigmoid ? 1 / (1 + std::exp(-gate)) : std::log1p(std::exp(gate));
}

/// Columns of x, and numbers of the gate.
struct Size {
  Index cols, gates;
};
const Size kSizes[] = {{1, 1}, {16, 16}, {37, 37}, {24, 3}, {35, 5}, {40, 1}};

// A few units in the last place of the function and of two products; of a head's gradient, of a sum.
TEST(OutputGate, MultipliesByItsFunctionAndHasItsGradients) {
  for (const GateFunction function : kFunctions)
    for (const Index rows : {0, 1, 5, 700})
      for (const Size size : kSizes) {
        const GappedMatrix x(rows, size.cols, 1), gate(rows, size.gates, 2, 4.0),
            upstream(rows, size.cols, 3);
        GappedMatrix y(rows, size.cols, 4), dx(rows, size.cols, 3), d_gate(rows, size.gates, 6);
        output_gate_forward(function, x, gate, y.view());
        output_gate_backward(function, dx, x, gate, dx, d_gate);  // over the gradient that it reads
        auto values = doubles_of(x), gates = doubles_of(gate);
        const std::size_t each = at(size.cols / size.gates);
        const auto formula = [&] {
          std::vector<double> out;
          for (std::size_t i = 0; i < values.size(); ++i)
            out.push_back(values[i] * by_definition(function, gates[i / each]));
          return out;
        };
        EXPECT_LE(worst_error(doubles_of(y), formula()), 1e-6);
        EXPECT_TRUE(y.gap_is_untouched() && dx.gap_is_untouched() && d_gate.gap_is_untouched());
        if (rows > 10) continue;  // of two evaluations a number
        const auto dy = doubles_of(upstream);
        const auto loss = [&] {
          const auto out = formula();
          return std::inner_product(out.begin(), out.end(), dy.begin(), 0.0);
        };
        EXPECT_LE(worst_error(doubles_of(dx), central_differences(values, loss)), 1e-6);
        EXPECT_LE(worst_error(doubles_of(d_gate), central_differences(gates, loss)), 2e-6);
      }
}

TEST(OutputGate, WritesBf16AsABf16ProductWouldRoundIt) {
  for (const GateFunction function : kFunctions)
    for (const Index gates : {40, 8}) {
      const Matrix x = random_matrix(7, 40, 1), gate = random_matrix(7, gates, 2);
      Matrix plain(7, 40);
      RowMemory memory;
      const Rows y = memory.reshape_uninitialised(DType::kBF16, 7, 40);
      output_gate_forward(function, x, gate, plain);
      output_gate_forward(function, x, gate, y);
      EXPECT_EQ(half_bits_of(y), rounded_bits_of(plain));
    }
}

TEST(OutputGate, RefusesAGateThatDoesNotFit) {
  Matrix x(2, 4), three(2, 3), other_rows(3, 4), heads(2, 2);
  const GateFunction function = GateFunction::kSoftplus;
  EXPECT_NO_THROW(output_gate_forward(function, x, heads, x));
  EXPECT_THROW(output_gate_forward(function, x, three, x), ShapeError);
  EXPECT_THROW(output_gate_forward(function, x, other_rows, x), ShapeError);
  EXPECT_THROW(output_gate_forward(function, x, x, three), ShapeError);
  EXPECT_THROW(output_gate_backward(function, x, x, x, x, three), ShapeError);
  EXPECT_THROW(output_gate_backward(function, x, x, heads, x, x), ShapeError);
}

}  // namespace
}  // namespace moeloom
