#include "kernels/causal_conv.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include "elementwise/elementwise_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

enum class Form { kPlain, kSilu, kGated };
constexpr Form kForms[] = {Form::kPlain, Form::kSilu, Form::kGated};

struct Case {
  Index channels, taps;
  bool with_bias;
  std::vector<Index> offsets;

  Index tokens() const { return offsets.back(); }
  Index segments() const { return std::ssize(offsets) - 1; }
};
/// Segments shorter than the taps, at and around a piece of 256 rows; channels around a task's 64.
const Case kCases[] = {{1, 1, false, {0, 1}},       {3, 4, true, {0, 1, 3, 10}},
                       {64, 3, false, {0, 12, 24}}, {70, 4, true, {0, 256, 257, 520}},
                       {5, 2, true, {0, 0, 7}},     {20, 6, false, {0, 300}}};

/// Of a case and a form, and what the kernel makes of them.
struct Trial {
  Trial(const Case& c, Form form_)
      : c(c),
        form(form_),
        x(random_matrix(c.tokens(), inputs(), 1)),
        dy(random_matrix(c.tokens(), c.channels, 2)),
        weight(random_matrix(c.channels, c.taps, 3)),
        before(random_matrix(c.segments(), (c.taps - 1) * c.channels, 4)),
        bias(random_vector(c.with_bias ? c.channels : 0, 5)),
        y(c.tokens(), c.channels),
        after(before.rows(), before.cols()),
        dx(c.tokens(), inputs()),
        d_weight(c.channels, c.taps),
        d_bias(bias.size()) {}

  Index inputs() const { return form == Form::kGated ? 3 * c.channels : c.channels; }
  CausalConv conv() const {
    return {weight, bias, form == Form::kSilu ? ConvActivation::kSilu : ConvActivation::kNone, c.offsets};
  }
  Trial& forward(ConstMatrixView inputs_before, MatrixView inputs_after) {
    (form == Form::kGated ? short_conv_forward : causal_conv_forward)(conv(), x, inputs_before, y,
                                                                      inputs_after);
    return *this;
  }
  Trial& backward() {
    (form == Form::kGated ? short_conv_backward : causal_conv_backward)(conv(), x, dy, dx,
                                                                        {d_weight, d_bias});
    return *this;
  }

  const Case& c;
  Form form;
  Matrix x, dy, weight, before;
  std::vector<float> bias;
  Matrix y, after, dx, d_weight;
  std::vector<float> d_bias;
};

/// The formula in double.
struct Truth {
  std::vector<double> x, weight, bias, before;

  explicit Truth(const Trial& r)
      : x(doubles_of(r.x)),
        weight(doubles_of(r.weight)),
        bias(r.bias.begin(), r.bias.end()),
        before(doubles_of(r.before)) {}

  double input(const Trial& r, Index t, Index channel) const {
    const double* row = x.data() + t * r.inputs();
    return r.form == Form::kGated ? row[channel] * row[2 * r.c.channels + channel] : row[channel];
  }
  std::vector<double> y(const Trial& r, bool from_before) const {
    std::vector<double> y;
    for (Index s = 0; s < r.c.segments(); ++s)
      for (Index t = r.c.offsets[at(s)]; t < r.c.offsets[at(s + 1)]; ++t)
        for (Index channel = 0; channel < r.c.channels; ++channel) {
          double sum = bias.empty() ? 0 : bias[at(channel)];
          for (Index j = 0; j < r.c.taps; ++j) {
            const Index from = t - r.c.taps + 1 + j, first = r.c.offsets[at(s)];
            const double w = weight[at(channel * r.c.taps + j)];
            if (from >= first) {
              sum += w * input(r, from, channel);
            } else if (from_before) {
              const Index row = from - first + r.c.taps - 1;
              sum += w * before[at((s * (r.c.taps - 1) + row) * r.c.channels + channel)];
            }
          }
          if (r.form == Form::kSilu) sum /= 1 + std::exp(-sum);
          if (r.form == Form::kGated) sum *= x[at(t * r.inputs() + r.c.channels + channel)];
          y.push_back(sum);
        }
    return y;
  }
};

// A few products of normal numbers and a silu of some five units in the last place.
TEST(CausalConv, AgreesWithTheFormulaInEveryForm) {
  for (const Case& c : kCases)
    for (const Form form : kForms) {
      Trial r(c, form);
      const Truth truth(r);
      EXPECT_LE(worst_error(doubles_of(r.forward({}, {}).y), truth.y(r, false)), 1e-6) << c.channels;
      EXPECT_LE(worst_error(doubles_of(r.forward(r.before, {}).y), truth.y(r, true)), 1e-6) << c.channels;
    }
}

TEST(CausalConv, HasTheGradientsOfTheFormula) {
  for (const Case& c : {kCases[0], kCases[1], kCases[4], Case{3, 4, true, {0, 255, 260}}})
    for (const Form form : kForms) {
      Trial r(c, form);
      r.backward();
      Truth truth(r);
      const std::vector<double> dy = doubles_of(r.dy);
      const auto loss = [&] {
        const std::vector<double> y = truth.y(r, false);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
        return sum;
      };
      EXPECT_LE(worst_error(doubles_of(r.dx), central_differences(truth.x, loss)), 4e-6) << c.channels;
      EXPECT_LE(worst_error(doubles_of(r.d_weight), central_differences(truth.weight, loss)), 4e-6);
      EXPECT_LE(worst_error(doubles_of(row_view(r.d_bias)), central_differences(truth.bias, loss)), 4e-6);
    }
}

TEST(CausalConv, AddsToTheGradientsOfWeightAndBias) {
  Trial r(kCases[1], Form::kSilu);
  r.backward();
  const std::vector<double> once = doubles_of(r.d_weight);
  r.backward();
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_FLOAT_EQ(r.d_weight.view().flat()[i], static_cast<float>(2 * once[i]));
}

TEST(CausalConv, DecodesAsSegmentsOfOneToken) {
  for (const Form form : kForms) {
    const Case whole{5, 4, true, {0, 9, 18}}, one{5, 4, true, {0, 1, 2}}, prompt{5, 4, true, {0, 2, 4}};
    Trial all(whole, form), step(one, form), start(prompt, form);
    all.forward({}, all.after);
    step.weight = Matrix::copy_of(all.weight), start.weight = Matrix::copy_of(all.weight);
    step.bias = start.bias = all.bias;
    const auto take = [&](Index token, MatrixView to, Index row) {
      copy(all.x.view().rows_from(token, 1), to.rows_from(row, 1));
    };
    for (const Index s : {0, 1})
      for (const Index t : {0, 1}) take(9 * s + t, start.x, 2 * s + t);
    start.forward({}, step.after);  // shorter than the taps
    for (Index t = 2; t < 9; ++t) {
      take(t, step.x, 0), take(9 + t, step.x, 1);
      step.forward(step.after, step.after);
      EXPECT_EQ(bits_of(step.y.view().rows_from(0, 1)), bits_of(all.y.view().rows_from(t, 1)));
      EXPECT_EQ(bits_of(step.y.view().rows_from(1, 1)), bits_of(all.y.view().rows_from(9 + t, 1)));
    }
    EXPECT_EQ(bits_of(step.after), bits_of(all.after));
  }
}

TEST(CausalConv, GivesTheSameBitsOnAnyThreadsAndOverItsUpstreamGradient) {
  for (const Form form : kForms) {
    const auto run = [&] { return std::move(Trial(kCases[3], form).forward({}, {}).backward()); };
    const Trial one = on_threads(1, run), three = on_threads(3, run);
    EXPECT_EQ(bits_of(one.y), bits_of(three.y));
    EXPECT_EQ(bits_of(one.dx), bits_of(three.dx));
    EXPECT_EQ(bits_of(one.d_weight), bits_of(three.d_weight));
    EXPECT_EQ(one.d_bias, three.d_bias);
    if (form == Form::kGated) continue;
    Trial over(kCases[3], form);
    causal_conv_backward(over.conv(), over.x, over.dy, over.dy, {over.d_weight, over.d_bias});
    EXPECT_EQ(bits_of(over.dy), bits_of(one.dx));
  }
}

TEST(CausalConv, RefusesShapesThatDoNotFit) {
  Trial r(kCases[1], Form::kSilu);
  Matrix narrow(10, 2), short_rows(9, 3);
  const auto forward = [&](const CausalConv& conv, ConstMatrixView x, MatrixView y, ConstMatrixView before) {
    causal_conv_forward(conv, x, before, y, {});
  };
  EXPECT_THROW(forward(r.conv(), narrow, r.y, {}), ShapeError);
  EXPECT_THROW(forward(r.conv(), r.x, short_rows, {}), ShapeError);
  EXPECT_THROW(forward(r.conv(), r.x, r.y, narrow), ShapeError);
  const std::vector<float> short_bias(2);
  const std::vector<Index> beyond = {0, 11};
  EXPECT_THROW(forward({r.weight, short_bias, {}, r.c.offsets}, r.x, r.y, {}), ShapeError);
  EXPECT_THROW(forward({r.weight, r.bias, {}, beyond}, r.x, r.y, {}), ShapeError);
  EXPECT_THROW(causal_conv_backward(r.conv(), r.x, r.dy, r.dx, {narrow, r.d_bias}), ShapeError);
  EXPECT_THROW(causal_conv_backward(r.conv(), r.x, r.dy, narrow, {r.d_weight, r.d_bias}), ShapeError);
  Trial gated(kCases[1], Form::kGated);
  EXPECT_THROW(short_conv_forward(r.conv(), gated.x, {}, r.y, {}), ShapeError);  // with SiLU
  EXPECT_THROW(short_conv_forward(gated.conv(), r.x, {}, r.y, {}), ShapeError);
}

}  // namespace
}  // namespace moeloom
