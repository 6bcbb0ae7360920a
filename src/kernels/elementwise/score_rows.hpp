// A router's scores of one token: softmax or sigmoids over its experts, and back.
//
// Every sum has one order for a width, whatever the thread.
#pragma once

#include "moeloom/base/index.hpp"

namespace moeloom {

struct SoftmaxSums {
  float log_sum = 0;  // log(sum e^x)
  float entropy = 0;  // -sum s log s, nats
};
/// scores [n] = e^x / sum e^x. One NaN makes all of them NaN, as an x of plus infinity does.
SoftmaxSums softmax_scores(const float* x, Index n, float* scores);
/// d [n]: gradient of the scores -> of x, where log(sum e^x) has the gradient d_log_sum.
void softmax_scores_backward(const float* scores, Index n, float d_log_sum, float* d);

/// scores [n] = 1 / (1 + e^-x). One NaN makes all of them NaN: a choice could leave it out, and nobody would
/// learn.
void sigmoid_scores(const float* x, Index n, float* scores);
void sigmoid_scores_backward(const float* scores, Index n, float* d);

/// Of scores [n], in double.
double sum_of_scores(const float* scores, Index n);
/// d [n] of the scores += that of p = s / sum s, of which d_p is the gradient. Nothing where the sum is 0.
void probability_backward(const float* scores, const float* d_p, Index n, float* d);

/// -sum p log p of p = s / sum s, for scores [n] that are not negative; 0 if all of them are 0.
float entropy_of_scores(const float* scores, Index n);

}  // namespace moeloom
