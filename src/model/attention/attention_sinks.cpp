#include "model/attention/attention.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <cmath>

#include "parts/softmax.hpp"

namespace moeloom {

void add_sink_gradients(std::span<const float> sinks, ConstMatrixView context, ConstMatrixView log_sum_exp,
                        ConstMatrixView d_context, std::span<float> d_sinks) {
  const Index heads = std::ssize(sinks), rows = context.rows;
  require(std::ssize(d_sinks) == heads && log_sum_exp.cols == heads && heads > 0 && context.cols % heads == 0,
          "attention: sinks, their gradients and log_sum_exp must be one a head");
  require(d_context.rows == rows && d_context.cols == context.cols && log_sum_exp.rows == rows,
          "attention: context, its gradient and log_sum_exp must have one row a query");
  const Index size = context.cols / heads;
  Matrix sums(ceil_div(rows, kSumChunkRows), heads);
  parallel_for(sums.rows(), [&](Index chunk) {
    float* sum = sums.row(chunk);
    for (Index t = chunk * kSumChunkRows; t < std::min(rows, (chunk + 1) * kSumChunkRows); ++t)
      for (Index head = 0; head < heads; ++head) {
        const float mean = ordered_dot(context.row(t) + head * size, d_context.row(t) + head * size, size);
        sum[head] += std::exp(sinks[at(head)] - log_sum_exp(t, head)) * mean;
      }
  });
  for (Index chunk = 0; chunk < sums.rows(); ++chunk)
    for (Index head = 0; head < heads; ++head) d_sinks[at(head)] -= sums.row(chunk)[head];
}

}  // namespace moeloom
