#include "kernels/elementwise/score_rows.hpp"

#include "kernels/elementwise/vector_math.hpp"
#include "tensor/eight.hpp"
#include "tensor/lanes.hpp"
#include "tensor/ordered_sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace moeloom {
namespace {

/// Lane by lane: of a loop clang does not make vector code, as it minds which of two zeros is the larger.
float largest_of(const float* x, Index n) {
  const float least = -std::numeric_limits<float>::infinity();
  Lanes lanes = broadcast(least);
  Index e = 0;
  for (; e + kLanes <= n; e += kLanes) {
    const Lanes numbers = load(x + e);
    lanes = numbers > lanes ? numbers : lanes;
  }
  float largest = least;
  for (Index lane = 0; lane < kLanes; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
  for (; e < n; ++e) largest = x[e] > largest ? x[e] : largest;
  return largest;
}

}  // namespace

SoftmaxSums softmax_scores(const float* x, Index n, float* scores) {
  const float largest = largest_of(x, n);
#pragma omp simd
  for (Index e = 0; e < n; ++e) scores[e] = vector_math::exp_of_nonpositive(x[e] - largest);
  const float sum = ordered_sum(scores, n);
  // From the largest on: the entropy of large logits is no difference of large numbers.
  const float along = ordered_sum(n, [=](Lanes before, auto at) {
    const Lanes power = at(scores), below = at(x) - largest;  // which may be minus infinity
    return before + (power == 0.0f ? Lanes{} : power * below);
  });
#pragma omp simd
  for (Index e = 0; e < n; ++e) scores[e] /= sum;
  const float log_of_powers = std::log(sum);
  return {largest + log_of_powers, std::max(log_of_powers - along / sum, 0.0f)};
}

// With p = e^x / sum: dx_e = p_e (d_e - sum_i p_i d_i + d_log_sum).
void softmax_scores_backward(const float* scores, Index n, float d_log_sum, float* d) {
  const float shift = d_log_sum - ordered_dot(scores, d, n);
#pragma omp simd
  for (Index e = 0; e < n; ++e) d[e] = scores[e] * (d[e] + shift);
}

void sigmoid_scores(const float* x, Index n, float* scores) {
  int numbers = 1;
#pragma omp simd reduction(& : numbers)
  for (Index e = 0; e < n; ++e) {
    scores[e] = vector_math::sigmoid(x[e]).value;
    numbers &= x[e] == x[e] ? 1 : 0;
  }
  if (numbers == 0) std::fill_n(scores, n, std::numeric_limits<float>::quiet_NaN());
}

void sigmoid_scores_backward(const float* scores, Index n, float* d) {
#pragma omp simd
  for (Index e = 0; e < n; ++e) d[e] *= scores[e] * (1 - scores[e]);
}

double sum_of_scores(const float* scores, Index n) {
  using Wide = double __attribute__((vector_size(8 * sizeof(double))));
  Wide sums = {};
  Index e = 0;
  for (; e + 8 <= n; e += 8) sums += __builtin_convertvector(load8(scores + e), Wide);
  double sum = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  for (; e < n; ++e) sum += static_cast<double>(scores[e]);
  return sum;
}

void probability_backward(const float* scores, const float* d_p, Index n, float* d) {
  const float sum = ordered_sum(scores, n);
  if (!(sum > 0)) return;
  const float mean = ordered_dot(scores, d_p, n) / sum;
#pragma omp simd
  for (Index e = 0; e < n; ++e) d[e] += (d_p[e] - mean) / sum;
}

float entropy_of_scores(const float* scores, Index n) {
  const float sum = ordered_sum(scores, n);
  OrderedSum along_scores;
  std::array<float, 8 * kPartialSums> terms;
  for (Index begin = 0; begin < n; begin += std::ssize(terms)) {
    const Index count = std::min<Index>(std::ssize(terms), n - begin);
#pragma omp simd
    for (Index e = 0; e < count; ++e)
      terms[at(e)] = scores[begin + e] * vector_math::log_of_normal(scores[begin + e]);
    along_scores.add(terms.data(), count);
  }
  const float along = along_scores.total();
  return sum > 0 ? std::max(std::log(sum) - along / sum, 0.0f) : sum;
}

}  // namespace moeloom
