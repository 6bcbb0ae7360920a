// AdamW on arrays, against its formula in double.
#include "c_arrays.hpp"

namespace moeloom {
namespace {

using namespace testing;

struct Parameter {
  explicit Parameter(Index count, std::int32_t weight = ML_F32, std::int32_t grad = ML_F32,
                     std::int32_t moments = ML_F32)
      : w(random_matrix(1, count, 1), {count}, {weight}),
        g(random_matrix(1, count, 2), {count}, {grad}),
        m(random_matrix(1, count, 3, 0.1), {count}, {moments}),
        v(squares(random_matrix(1, count, 4, 0.1)), {count}, {moments}) {}
  static Matrix squares(Matrix x) {
    for (float& number : x.view().flat()) number *= number;
    return x;
  }
  ml_status update(const ml_adamw_settings& settings) const { return ml_adamw(&settings, w, g, m, v); }
  Array w, g, m, v;
};

constexpr ml_adamw_settings kSettings = {sizeof(ml_adamw_settings), 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 3, 11};

Matrix expected_weight(const Parameter& p) {
  const ml_adamw_settings& s = kSettings;
  Matrix w = p.w.numbers();
  const Matrix g = p.g.numbers(), m = p.m.numbers(), v = p.v.numbers();
  for (Index i = 0; i < w.cols(); ++i) {
    const auto at_place = [&](const Matrix& x) { return static_cast<double>(x.view().data[i]); };
    const double grad = s.grad_scale * at_place(g);
    const double first = s.beta1 * at_place(m) + (1 - s.beta1) * grad;
    const double second = s.beta2 * at_place(v) + (1 - s.beta2) * grad * grad;
    const double root = std::sqrt(second / (1 - std::pow(s.beta2, 3))) + s.epsilon;
    w.row(0)[i] = static_cast<float>(at_place(w) * (1 - s.learning_rate * s.weight_decay) -
                                     s.learning_rate * first / (1 - std::pow(s.beta1, 3)) / root);
  }
  return w;
}

TEST(CAdamW, IsTheFormulaInEveryFormat) {
  for (const Index count : {Index{1}, Index{100'000}})
    for (const std::int32_t weight : {ML_F32, ML_BF16})
      for (const std::int32_t moments : {ML_F32, ML_BF16}) {
        const Parameter p(count, weight, weight, moments);
        const Matrix expected = expected_weight(p), before = p.m.numbers();
        EXPECT_OK(p.update(kSettings));
        expect_near(p.w.numbers(), expected, 4 * rounding_of(weight), "w");
        EXPECT_NE(p.m.numbers().row(0)[0], before.row(0)[0]);
      }
}

TEST(CAdamW, RoundsAtRandomByTheSeed) {
  const Parameter a(1000, ML_BF16), b(1000, ML_BF16), c(1000, ML_BF16);
  ml_adamw_settings other = kSettings;
  other.seed = 12;
  EXPECT_OK(a.update(kSettings));
  EXPECT_OK(b.update(kSettings));
  EXPECT_OK(c.update(other));
  expect_near(a.w.numbers(), b.w.numbers(), 0, "the same seed");
  Index different = 0;
  const Matrix x = a.w.numbers(), y = c.w.numbers();
  for (Index i = 0; i < 1000; ++i) different += x.row(0)[i] != y.row(0)[i];
  EXPECT_GT(different, 100);
}

TEST(CAdamW, SaysWhatDoesNotFit) {
  const Parameter p(8), halves(8, ML_F16), mixed(8, ML_F32, ML_F32, ML_BF16);
  EXPECT_STATUS(halves.update(kSettings), ML_TYPE, "weight is ML_F16");
  EXPECT_STATUS(ml_adamw(&kSettings, p.w, p.g, p.m, mixed.v), ML_TYPE, "second is ML_BF16");
  EXPECT_STATUS(ml_adamw(&kSettings, p.w, Parameter(9).g, p.m, p.v), ML_SHAPE, "grad is [9] and must be [8]");
  ml_adamw_settings settings = kSettings;
  settings.time = 0;
  EXPECT_STATUS(p.update(settings), ML_SHAPE, "from 1 on");
  const Array gaps({2, 4}, {ML_F32, 1});
  EXPECT_STATUS(ml_adamw(&kSettings, gaps, gaps, gaps, gaps), ML_SHAPE, "no gaps");
}

}  // namespace
}  // namespace moeloom
