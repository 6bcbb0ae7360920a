#include "moeloom/tensor/gemm.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <limits>
#include <mutex>
#include <vector>

#include <cblas.h>

namespace moeloom {
namespace {

int blas_int(Index n) {
  require(n >= 0 && n <= std::numeric_limits<int>::max(), "a BLAS size must fit an int");
  return static_cast<int>(n);
}

float beta_of(Write mode) {
  return mode == Write::kAdd ? 1.0f : 0.0f;
}

/// While one lives, OpenBLAS starts no threads of its own beside the rank's team; the number that it had,
/// which is the whole process's, is there again when the last of them ends. 33 ns.
class OneBlasThread {
 public:
  OneBlasThread() {
    const std::lock_guard lock(state().mutex);
    if (state().users++ > 0) return;
    state().before = openblas_get_num_threads();
    set(1);
  }
  ~OneBlasThread() {
    const std::lock_guard lock(state().mutex);
    if (--state().users == 0) set(state().before);
  }
  OneBlasThread(const OneBlasThread&) = delete;
  OneBlasThread& operator=(const OneBlasThread&) = delete;

 private:
  struct State {
    std::mutex mutex;
    int users = 0;
    int before = 1;
  };
  static State& state() {
    static State all;
    return all;
  }
  /// Where OpenBLAS runs on OpenMP, its number is the calling thread's too.
  static void set(int number) {
    if (openblas_get_num_threads() == number) return;
    const int here = threads();
    openblas_set_num_threads(number);
    set_threads(here);
  }
};

/// gemm_serial() for who has seen to the threads.
void multiply(ConstMatrixView a, ConstMatrixView b, MatrixView c, GemmOptions o) {
  const Index depth = o.transpose_a ? a.rows : a.cols;
  require((o.transpose_a ? a.cols : a.rows) == c.rows, "gemm: rows of op(a) must equal rows of c");
  require((o.transpose_b ? b.cols : b.rows) == depth, "gemm: rows of op(b) must equal columns of op(a)");
  require((o.transpose_b ? b.rows : b.cols) == c.cols, "gemm: columns of op(b) must equal columns of c");
  if (c.rows == 0 || c.cols == 0) return;
  cblas_sgemm(CblasRowMajor, o.transpose_a ? CblasTrans : CblasNoTrans,
              o.transpose_b ? CblasTrans : CblasNoTrans, blas_int(c.rows), blas_int(c.cols), blas_int(depth),
              o.alpha, a.data, blas_int(std::max<Index>(a.stride, 1)), b.data,
              blas_int(std::max<Index>(b.stride, 1)), o.beta, c.data, blas_int(std::max<Index>(c.stride, 1)));
}

std::vector<double> widened(ConstMatrixView x) {
  std::vector<double> wide;
  wide.reserve(static_cast<std::size_t>(x.size()));
  for (Index i = 0; i < x.rows; ++i) wide.insert(wide.end(), x.row(i), x.row(i) + x.cols);
  return wide;
}

}  // namespace

void gemm_serial(ConstMatrixView a, ConstMatrixView b, MatrixView c, GemmOptions o) {
  const OneBlasThread one;
  multiply(a, b, c, o);
}

std::string blas_library() {
  return openblas_get_config() + std::string(" ") + openblas_get_corename();
}

void matmul(ConstMatrixView x, ConstMatrixView w, MatrixView y, Write mode) {
  const OneBlasThread one;
  require(x.rows == y.rows, "matmul needs as many rows of x as of y");
  parallel_blocks(x.rows, kGemmRows, [&](Index begin, Index end) {
    multiply(x.rows_from(begin, end - begin), w, y.rows_from(begin, end - begin),
             {.transpose_b = true, .beta = beta_of(mode)});
  });
}

void matmul(ConstMatrixView x, ConstMatrixView w, BasicView<double> y) {
  const OneBlasThread one;
  require(x.rows == y.rows && x.cols == w.cols && w.rows == y.cols && y.contiguous(),
          "a product in double needs x [M, in], w [out, in] and y [M, out]");
  if (y.size() == 0) return;
  const std::vector<double> wide_w = widened(w);
  parallel_blocks(x.rows, kGemmRows, [&](Index begin, Index end) {
    const std::vector<double> wide_x = widened(x.rows_from(begin, end - begin));
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas_int(end - begin), blas_int(w.rows),
                blas_int(w.cols), 1.0, wide_x.data(), blas_int(w.cols), wide_w.data(), blas_int(w.cols), 0.0,
                y.row(begin), blas_int(w.rows));
  });
}

void matmul_input_grad(ConstMatrixView dy, ConstMatrixView w, MatrixView dx, Write mode) {
  const OneBlasThread one;
  require(dy.rows == dx.rows, "an input gradient needs as many rows of dy as of dx");
  parallel_blocks(dy.rows, kGemmRows, [&](Index begin, Index end) {
    multiply(dy.rows_from(begin, end - begin), w, dx.rows_from(begin, end - begin), {.beta = beta_of(mode)});
  });
}

void matmul_weight_grad(ConstMatrixView dy, ConstMatrixView x, MatrixView dw, Write mode) {
  const OneBlasThread one;
  require(dy.rows == x.rows, "a weight gradient needs as many rows of dy as of x");
  if (dy.rows == 0 && mode == Write::kReplace) return fill(dw, 0.0f);
  parallel_blocks(dw.cols, kGemmColumns, [&](Index begin, Index end) {
    for (Index row = 0; row < dy.rows; row += kSumChunkRows) {
      const Index rows = std::min(kSumChunkRows, dy.rows - row);
      multiply(dy.rows_from(row, rows), x.rows_from(row, rows).cols_from(begin, end - begin),
               dw.cols_from(begin, end - begin),
               {.transpose_a = true, .beta = row == 0 ? beta_of(mode) : 1.0f});
    }
  });
}

}  // namespace moeloom
