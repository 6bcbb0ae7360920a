#include "moeloom/kernels/dense.hpp"

#include "tile/packed_weight_grad.hpp"
#include "tile/tiled_products.hpp"

namespace moeloom {
namespace {

template <typename Element, typename Side>
void multiply(ConstRows x, ConstRows w, MatrixView y, Write mode) {
  packed::check_that_it_reads<Element>(x);
  const Index rows = x.rows();
  packed::multiply_masters<Element, Side>({w, 1}, x, {std::span(&rows, 1), 1}, y, mode);
}

template <typename Element>
void weight_grad(ConstRows dy, ConstRows x, MatrixView dw, Write mode) {
  const Index rows = x.rows();
  packed::grouped_weight_grad<Element>(dy, x, {std::span(&rows, 1), 1}, dw, mode);
}

template <typename Element>
DenseKernel kernel_of() {
  return {.element = Element::kType,
          .forward = multiply<Element, packed::Along>,
          .input_grad = multiply<Element, packed::Down>,
          .weight_grad = weight_grad<Element>};
}

}  // namespace

DenseKernel tiled_dense() {
  return kernel_of<packed::Fp32>();
}

DenseKernel tiled_bf16_dense(Bf16Unit unit) {
  return unit == Bf16Unit::kTiles ? kernel_of<packed::Bf16Matrix>() : kernel_of<packed::Bf16>();
}

}  // namespace moeloom
