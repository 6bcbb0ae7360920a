#include "moeloom/kernels/elementwise/score_rows.hpp"

#include "moeloom/kernels/elementwise/vector_math.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moeloom {

SoftmaxSums softmax_scores(const float* x, Index n, float* scores) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (Index e = 0; e < n; ++e) largest = x[e] > largest ? x[e] : largest;
  float sum = 0;
  float along = 0;  // from the largest on: the entropy of large logits is no difference of large numbers
#pragma omp simd reduction(+ : sum, along)
  for (Index e = 0; e < n; ++e) {
    const float below = x[e] - largest;
    const float power = vector_math::exp_of_nonpositive(below);
    scores[e] = power;
    sum += power;
    along += power == 0.0f ? 0.0f : power * below;  // below may be minus infinity
  }
#pragma omp simd
  for (Index e = 0; e < n; ++e) scores[e] /= sum;
  const float log_of_powers = std::log(sum);
  return {largest + log_of_powers, std::max(log_of_powers - along / sum, 0.0f)};
}

// With p = e^x / sum: dx_e = p_e (d_e - sum_i p_i d_i + d_log_sum).
void softmax_scores_backward(const float* scores, Index n, float d_log_sum, float* d) {
  float mean = 0;
#pragma omp simd reduction(+ : mean)
  for (Index e = 0; e < n; ++e) mean += scores[e] * d[e];
  const float shift = d_log_sum - mean;
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
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index e = 0; e < n; ++e) sum += static_cast<double>(scores[e]);
  return sum;
}

void probability_backward(const float* scores, const float* d_p, Index n, float* d) {
  float sum = 0;
  float along = 0;
#pragma omp simd reduction(+ : sum, along)
  for (Index e = 0; e < n; ++e) {
    sum += scores[e];
    along += scores[e] * d_p[e];
  }
  if (!(sum > 0)) return;
  const float mean = along / sum;
#pragma omp simd
  for (Index e = 0; e < n; ++e) d[e] += (d_p[e] - mean) / sum;
}

float entropy_of_scores(const float* scores, Index n) {
  float sum = 0;
  float along = 0;
#pragma omp simd reduction(+ : sum, along)
  for (Index e = 0; e < n; ++e) {
    sum += scores[e];
    along += scores[e] * vector_math::log_of_normal(scores[e]);
  }
  return sum > 0 ? std::max(std::log(sum) - along / sum, 0.0f) : sum;
}

}  // namespace moeloom
