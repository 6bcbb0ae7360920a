// The library from C99: one product an expert, y_i = x_i w_i^T, with the gradient of the weights.
#include <moeloom/c/moeloom.h>
#include <stdio.h>

enum { kExperts = 3, kIn = 4, kOut = 2, kRows = 5 };

static ml_array matrix(float* data, int64_t rows, int64_t cols) {
  ml_array a = {.data = data, .shape = {rows, cols}, .stride = {cols, 1}, .ndim = 2, .dtype = ML_F32};
  return a;
}

static ml_array stack(float* data, int64_t experts, int64_t rows, int64_t cols) {
  ml_array a = {.data = data,
                .shape = {experts, rows, cols},
                .stride = {rows * cols, cols, 1},
                .ndim = 3,
                .dtype = ML_F32};
  return a;
}

static int failed(ml_status status) {
  if (status != ML_OK) fprintf(stderr, "status %d: %s\n", (int)status, ml_last_error());
  return status != ML_OK;
}

int main(void) {
  float x[kRows * kIn], w[kExperts * kOut * kIn], y[kRows * kOut], dw[kExperts * kOut * kIn];
  int64_t rows[kExperts] = {2, 0, 3};  // the second expert has none
  for (int i = 0; i < kRows * kIn; ++i) x[i] = (float)(i % 7) - 3;
  for (int i = 0; i < kExperts * kOut * kIn; ++i) w[i] = (float)(i % 5) - 2;

  ml_array x_rows = matrix(x, kRows, kIn), y_rows = matrix(y, kRows, kOut);
  ml_array w_stack = stack(w, kExperts, kOut, kIn), dw_stack = stack(dw, kExperts, kOut, kIn);
  ml_array counts = {.data = rows, .shape = {kExperts}, .stride = {1}, .ndim = 1, .dtype = ML_I64};
  ml_weights weights = {.arrays = &w_stack, .count = 1, .layout = ML_OUT_IN};
  ml_weights d_weights = {.arrays = &dw_stack, .count = 1, .layout = ML_OUT_IN};

  if (ml_abi() != ML_ABI) return 1;
  if (failed(ml_gmm(&x_rows, &weights, &counts, &y_rows))) return 1;
  if (failed(ml_gmm_weight_grad(&y_rows, &x_rows, &counts, &d_weights, ML_REPLACE))) return 1;

  int wrong = 0;
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < kOut; ++n) {
      float sum = 0;
      const int expert = r < 2 ? 0 : 2;
      for (int k = 0; k < kIn; ++k) sum += x[r * kIn + k] * w[(expert * kOut + n) * kIn + k];
      wrong += y[r * kOut + n] != sum;
    }
  for (int i = 0; i < kOut * kIn; ++i) wrong += dw[kOut * kIn + i] != 0;
  printf("moeloom %s: y[0] = %g, %d numbers are wrong\n", ml_version(), y[0], wrong);
  return wrong;
}
