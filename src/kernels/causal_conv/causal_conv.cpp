// A task takes some channels and some rows: it copies the inputs that they need beside each other, those
// before the first row included, so that one loop serves every place in a segment and every form of the
// convolution.
#include "kernels/causal_conv.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "tensor/lanes.hpp"

#include <algorithm>
#include <vector>

#include "causal_conv/conv_forms.hpp"

namespace moeloom {
namespace {

using namespace causal_conv;

/// Channels of a task: whole lines of memory, and few enough that its rows stay in the second-level cache.
constexpr Index kChannels = 64;

/// Some rows of one segment.
struct Piece {
  Index number;
  Stretch segment;
  Stretch rows;
};

std::vector<Piece> cut(const CausalConv& conv) {
  std::vector<Piece> pieces;
  for (Index s = 0; s < conv.segments(); ++s) {
    const Stretch segment{conv.segment_offsets[at(s)], conv.segment_offsets[at(s + 1)]};
    for (Index begin = segment.begin; begin < segment.end; begin += kSumChunkRows)
      pieces.push_back({s, segment, {begin, std::min(begin + kSumChunkRows, segment.end)}});
  }
  return pieces;
}

Channels channels_of(const CausalConv& conv, Index task) {
  return {task * kChannels, std::min((task + 1) * kChannels, conv.channels())};
}
Index channel_tasks(const CausalConv& conv) {
  return ceil_div(conv.channels(), kChannels);
}

/// weight^T of these channels, and a bias that is there: what a row of channels is multiplied with.
class Taps {
 public:
  Taps(const CausalConv& conv, Channels channels)
      : taps_(conv.taps()), weights_(at((taps_ + 1) * kChannels), 0.0f) {
    for (Index c = 0; c < channels.size(); ++c) {
      for (Index j = 0; j < taps_; ++j) weights_[at(j * kChannels + c)] = conv.weight(channels.begin + c, j);
      if (!conv.bias.empty()) weights_[at(taps_ * kChannels + c)] = conv.bias[at(channels.begin + c)];
    }
  }
  const float* weight(Index tap) const { return weights_.data() + tap * kChannels; }
  const float* bias() const { return weight(taps_); }
  Index count() const { return taps_; }

 private:
  Index taps_;
  std::vector<float> weights_;
};

/// sum += factor * x, a row of channels.
void add_product(const float* factor, const float* x, float* sum) {
#pragma omp simd
  for (Index c = 0; c < kChannels; ++c) sum[c] = multiply_add(factor[c], x[c], sum[c]);
}

/// From the row of the oldest input on, rows kChannels apart.
void convolve(const Taps& taps, const float* inputs, float* sum) {
  std::copy_n(taps.bias(), kChannels, sum);
  for (Index j = 0; j < taps.count(); ++j) add_product(taps.weight(j), inputs + j * kChannels, sum);
}

/// Inputs of rows [rows.begin - K + 1, rows.end), kChannels apart; before the segment those given, or zeros.
template <typename Form>
void read_inputs(const Form& form, const CausalConv& conv, const Piece& piece, Stretch rows, Channels c,
                 ConstMatrixView before, float* to) {
  const Index earlier = conv.taps() - 1;
  for (Index t = rows.begin - earlier; t < rows.end; ++t, to += kChannels) {
    const Index from_start = t - piece.segment.begin;
    if (from_start >= 0) {
      form.read(t, c, to);
    } else if (before.data != nullptr) {
      const Index row = from_start + earlier;
      std::copy_n(before.row(piece.number) + row * conv.channels() + c.begin, c.size(), to);
    } else {
      std::fill_n(to, c.size(), 0.0f);
    }
  }
}

template <typename Form>
void forward(const Form& form, const CausalConv& conv, ConstMatrixView before, MatrixView after) {
  const std::vector<Piece> pieces = cut(conv);
  const Index tasks = channel_tasks(conv), earlier = conv.taps() - 1;
  // Inputs after may lie over those before, which the segment's first piece needs: they are written last.
  Matrix last(after.data == nullptr ? 0 : conv.segments(), earlier * conv.channels());
  parallel_for(std::ssize(pieces) * tasks, [&](Index task) {
    const Piece& piece = pieces[at(task / tasks)];
    const Channels c = channels_of(conv, task % tasks);
    const Taps taps(conv, c);
    std::vector<float> inputs(at((piece.rows.size() + earlier) * kChannels)), sum(kChannels);
    read_inputs(form, conv, piece, piece.rows, c, before, inputs.data());
    for (Index t = piece.rows.begin; t < piece.rows.end; ++t) {
      convolve(taps, inputs.data() + (t - piece.rows.begin) * kChannels, sum.data());
      form.write(t, c, sum.data());
    }
    if (last.rows() == 0 || piece.rows.end != piece.segment.end) return;
    for (Index j = 0; j < earlier; ++j)
      std::copy_n(inputs.data() + (piece.rows.size() + j) * kChannels, c.size(),
                  last.row(piece.number) + j * conv.channels() + c.begin);
  });
  for (const Piece& piece : pieces)
    if (last.rows() > 0 && piece.rows.end == piece.segment.end)
      std::copy_n(last.row(piece.number), last.cols(), after.row(piece.number));
}

/// One task's gradients by its taps and its bias.
class TapSums {
 public:
  explicit TapSums(Index taps) : taps_(taps), sums_(at((taps + 1) * kChannels)) {}

  void add_row(const float* slope, const float* inputs) {
    for (Index j = 0; j < taps_; ++j) add_product(slope, inputs + j * kChannels, row(j));
    for (Index i = 0; i < kChannels; ++i) row(taps_)[i] += slope[i];
  }
  /// Onto the gradients of these channels; then they are zero again.
  void move_to(const CausalConvGradients& gradients, Channels c) {
    for (Index i = 0; i < c.size(); ++i) {
      for (Index j = 0; j < taps_; ++j) gradients.weight(c.begin + i, j) += row(j)[i];
      if (!gradients.bias.empty()) gradients.bias[at(c.begin + i)] += row(taps_)[i];
    }
    std::fill(sums_.begin(), sums_.end(), 0.0f);
  }

 private:
  float* row(Index tap) { return sums_.data() + tap * kChannels; }

  Index taps_;
  std::vector<float> sums_;
};

/// A task goes through the pieces in order, so that their sums have one.
template <typename Form>
void backward(const Form& form, const CausalConv& conv, const CausalConvGradients& gradients) {
  const std::vector<Piece> pieces = cut(conv);
  const Index later = conv.taps() - 1;
  parallel_for(channel_tasks(conv), [&](Index task) {
    const Channels c = channels_of(conv, task);
    const Taps taps(conv, c);
    TapSums sums(conv.taps());
    std::vector<float> inputs(at((kSumChunkRows + 2 * later) * kChannels));
    std::vector<float> slopes(at((kSumChunkRows + later) * kChannels)), d_input(kChannels);
    for (const Piece& piece : pieces) {
      const Stretch seen{piece.rows.begin, std::min(piece.rows.end + later, piece.segment.end)};
      read_inputs(form, conv, piece, seen, c, {}, inputs.data());
      std::fill(slopes.begin(), slopes.end(), 0.0f);
      for (Index i = 0; i < seen.size(); ++i) {
        float* slope = slopes.data() + i * kChannels;
        convolve(taps, inputs.data() + i * kChannels, slope);
        form.slope(seen.begin + i, c, i < piece.rows.size(), slope);
      }
      for (Index i = 0; i < piece.rows.size(); ++i) {
        sums.add_row(slopes.data() + i * kChannels, inputs.data() + i * kChannels);
        std::fill(d_input.begin(), d_input.end(), 0.0f);
        for (Index j = 0; j <= later; ++j)
          add_product(taps.weight(later - j), slopes.data() + (i + j) * kChannels, d_input.data());
        form.write_gradient(piece.rows.begin + i, c, d_input.data());
      }
      sums.move_to(gradients, c);
    }
  });
}

bool is(ConstMatrixView m, Index rows, Index cols) {
  return m.rows == rows && m.cols == cols;
}

/// x of a convolution has channels() columns, of a short one three times as many.
void check(const CausalConv& conv, ConstMatrixView x, ConstMatrixView y, Index columns) {
  require(conv.taps() > 0, "causal convolution: weight must be [channels, K] with K at least 1");
  require(!conv.segment_offsets.empty() && conv.segment_offsets.front() == 0 &&
              conv.segment_offsets.back() == x.rows &&
              std::is_sorted(conv.segment_offsets.begin(), conv.segment_offsets.end()),
          "causal convolution: segments must rise from 0 to the number of tokens");
  require(x.cols == columns && is(y, x.rows, conv.channels()),
          "causal convolution: rows must have a column for each channel");
  require(conv.bias.empty() || std::ssize(conv.bias) == conv.channels(),
          "causal convolution: bias needs a number for each channel");
}

void check_inputs(const CausalConv& conv, ConstMatrixView inputs) {
  require(inputs.data == nullptr || is(inputs, conv.segments(), (conv.taps() - 1) * conv.channels()),
          "causal convolution: inputs before and after must be [segments, (K-1)*channels] or empty");
}

void check_gradients(const CausalConv& conv, ConstMatrixView x, ConstMatrixView dx,
                     const CausalConvGradients& gradients) {
  require(is(dx, x.rows, x.cols), "causal convolution: the gradient must have the shape of its input");
  require(is(gradients.weight, conv.channels(), conv.taps()) && gradients.bias.size() == conv.bias.size(),
          "causal convolution: gradients must have the shapes of weight and bias");
}

void require_no_activation(const CausalConv& conv) {
  require(conv.activation == ConvActivation::kNone, "a short convolution has no activation");
}

}  // namespace

void causal_conv_forward(const CausalConv& conv, ConstMatrixView x, ConstMatrixView inputs_before,
                         MatrixView y, MatrixView inputs_after) {
  check(conv, x, y, conv.channels());
  check_inputs(conv, inputs_before);
  check_inputs(conv, inputs_after);
  const Plain plain{x, {}, y};
  if (conv.activation == ConvActivation::kSilu)
    return forward(Silu{plain}, conv, inputs_before, inputs_after);
  forward(plain, conv, inputs_before, inputs_after);
}

void causal_conv_backward(const CausalConv& conv, ConstMatrixView x, ConstMatrixView dy, MatrixView dx,
                          const CausalConvGradients& gradients) {
  check(conv, x, dy, conv.channels());
  check_gradients(conv, x, dx, gradients);
  const Plain plain{x, dy, dx};
  if (conv.activation == ConvActivation::kSilu) return backward(Silu{plain}, conv, gradients);
  backward(plain, conv, gradients);
}

void short_conv_forward(const CausalConv& conv, ConstMatrixView projected, ConstMatrixView inputs_before,
                        MatrixView y, MatrixView inputs_after) {
  require_no_activation(conv);
  check(conv, projected, y, 3 * conv.channels());
  check_inputs(conv, inputs_before);
  check_inputs(conv, inputs_after);
  forward(Gated{projected, {}, y, conv.channels()}, conv, inputs_before, inputs_after);
}

void short_conv_backward(const CausalConv& conv, ConstMatrixView projected, ConstMatrixView dy,
                         MatrixView d_projected, const CausalConvGradients& gradients) {
  require_no_activation(conv);
  check(conv, projected, dy, 3 * conv.channels());
  check_gradients(conv, projected, d_projected, gradients);
  backward(Gated{projected, dy, d_projected, conv.channels()}, conv, gradients);
}

}  // namespace moeloom
