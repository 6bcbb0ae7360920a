// Grouped matmul on register tiles, from packed faces or from the masters.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <memory>
#include <type_traits>

#include "tile/packed_weight_grad.hpp"
#include "tile/packed_weights.hpp"
#include "tile/tiled_products.hpp"

namespace moeloom {
namespace {

/// y = x times each group's packed face.
template <typename Element>
void multiply_faces(const packed::Face& face, Index groups, ConstRows x, const GroupedRows& rows,
                    MatrixView y) {
  using Workspace = packed::FaceWorkspace<Element>;
  const std::unique_ptr<Workspace[]> workspaces(new Workspace[at(threads())]);
  packed::for_each_task(
      {groups, face.numbers(), face.cols()}, x, rows, y,
      {packed::kBlockRows<Element>, packed::kMostCols<Element>}, [&](const packed::Task& task) {
        face.multiply<Element>(task.group, task.panels, task.x, task.y, workspaces[at(thread_index())]);
      });
}

/// y = x times each group's right side as Side sees it: packed faces if there are any, else the masters.
template <typename Element, typename Side>
void multiply(const GroupedWeights& masters, const PackedWeights& faces, ConstRows x, const GroupedRows& rows,
              MatrixView y) {
  packed::check_that_it_reads<Element>(x);
  if (faces.empty()) return packed::multiply_masters<Element, Side>(masters, x, rows, y);
  require(faces.element() == Element::kType, "grouped matmul needs weights packed as its own element");
  const PackedWeights::State& state = faces.state();
  const bool forward = std::is_same_v<Side, packed::Along>;
  multiply_faces<Element>(forward ? state.forward : state.input_grad, state.groups, x, rows, y);
}

template <typename Element, typename Side>
void add_product(const GroupedWeights& masters, ConstRows x, const GroupedRows& rows, MatrixView y) {
  packed::check_that_it_reads<Element>(x);
  packed::multiply_masters<Element, Side>(masters, x, rows, y, Write::kAdd);
}

template <typename Element>
GroupedMatmulKernel kernel_of() {
  return {.uses_packed = true,
          .element = Element::kType,
          .rows_alone = true,
          .forward = multiply<Element, packed::Along>,
          .input_grad = multiply<Element, packed::Down>,
          .add_forward = add_product<Element, packed::Along>,
          .add_input_grad = add_product<Element, packed::Down>,
          .weight_grad = packed::grouped_weight_grad<Element>};
}

}  // namespace

GroupedMatmulKernel packed_grouped_matmul() {
  return kernel_of<packed::Fp32>();
}

GroupedMatmulKernel packed_bf16_grouped_matmul(Bf16Unit unit) {
  return unit == Bf16Unit::kTiles ? kernel_of<packed::Bf16Matrix>() : kernel_of<packed::Bf16>();
}

}  // namespace moeloom
