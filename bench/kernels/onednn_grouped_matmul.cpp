// The only file that knows oneDNN; 3.x builds a primitive without the descriptor object that 2.x has.
#include "onednn_grouped_matmul.hpp"

#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <variant>

#include <oneapi/dnnl/dnnl.hpp>

namespace moeloom::bench {
namespace {

using dnnl::memory;

constexpr Index kBlockRows = 256;

memory::desc describe(ConstMatrixView m) {
  return {{m.rows, m.cols}, memory::data_type::f32, memory::dims{m.stride, 1}};
}

memory::desc describe_transposed(ConstMatrixView m) {
  return {{m.cols, m.rows}, memory::data_type::f32, memory::dims{1, m.stride}};
}

/// From oneDNN's own cache after the first product of these shapes.
dnnl::matmul make_matmul(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                         const memory::desc& c, Write mode) {
  dnnl::primitive_attr attributes;
  if (mode == Write::kAdd) {
    dnnl::post_ops add_to_c;
    add_to_c.append_sum(1.0f);
    attributes.set_post_ops(add_to_c);
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine, a, b, c, attributes));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine));
#endif
}

/// c (+)= a b; the views give memory, the descriptions how it is read.
void multiply(ConstMatrixView a, const memory::desc& a_shape, ConstMatrixView b, const memory::desc& b_shape,
              MatrixView c, Write mode) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc c_shape = describe(c);
  // oneDNN takes pointers to memory that it may write, also where it reads.
  const auto borrow = [&](const memory::desc& shape, const float* data) {
    return memory(shape, engine, const_cast<float*>(data));
  };
  make_matmul(engine, a_shape, b_shape, c_shape, mode)
      .execute(stream, {{DNNL_ARG_SRC, borrow(a_shape, a.data)},
                        {DNNL_ARG_WEIGHTS, borrow(b_shape, b.data)},
                        {DNNL_ARG_DST, borrow(c_shape, c.data)}});
  stream.wait();
}

/// body(group, first row, rows) for every group.
template <typename Body>
void for_each_group(const GroupedRows& rows, Body body) {
  Index first = 0;
  for (Index g = 0; g < rows.groups(); ++g) {
    body(g, first, rows.of_group(g));
    first += rows.of_group(g);
  }
}

/// y_g = x_g b_g by row blocks on the rank's threads; shape(b_g) says how the weight is read.
template <typename Shape>
void multiply_groups(const GroupedWeights& w, ConstMatrixView x, const GroupedRows& rows, MatrixView y,
                     Shape shape) {
  for_each_group(rows, [&](Index g, Index first, Index count) {
    const ConstMatrixView weight = w.group(g).fp32();
    parallel_blocks(count, kBlockRows, [&](Index begin, Index end) {
      const ConstMatrixView part = x.rows_from(first + begin, end - begin);
      multiply(part, describe(part), weight, shape(weight), y.rows_from(first + begin, end - begin),
               Write::kReplace);
    });
  });
}

void forward(const GroupedWeights& w, const PackedWeights&, ConstRows x, const GroupedRows& rows,
             MatrixView y) {
  multiply_groups(w, x.fp32(), rows, y, describe_transposed);
}

void input_grad(const GroupedWeights& w, const PackedWeights&, ConstRows dy, const GroupedRows& rows,
                MatrixView dx) {
  multiply_groups(w, dy.fp32(), rows, dx, describe);
}

void weight_grad(ConstRows given_dy, ConstRows given_x, const GroupedRows& rows, const GroupedGradients& dw,
                 Write mode) {
  const ConstMatrixView dy = given_dy.fp32(), x = given_x.fp32();
  dw.check(rows.groups(), dy.cols, x.cols);
  for_each_group(rows, [&](Index g, Index first, Index count) {
    const auto target = std::get<MatrixView>(dw.group(g, dy.cols));
    if (count == 0 && mode == Write::kReplace) fill(target, 0.0f);
    for (Index row = 0; row < count; row += kSumChunkRows) {
      const Index n = std::min(kSumChunkRows, count - row);
      const ConstMatrixView dy_part = dy.rows_from(first + row, n), x_part = x.rows_from(first + row, n);
      multiply(dy_part, describe_transposed(dy_part), x_part, describe(x_part), target,
               row == 0 ? mode : Write::kAdd);
    }
  });
}

}  // namespace

GroupedMatmulKernel onednn_grouped_matmul() {
  GroupedMatmulKernel kernel = native_grouped_matmul();
  kernel.forward = forward;
  kernel.input_grad = input_grad;
  kernel.weight_grad = weight_grad;
  return kernel;
}

}  // namespace moeloom::bench
