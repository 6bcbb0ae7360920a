// y = x times one right side a group, on register tiles: what grouped and dense products share.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <functional>

#include "tile/master_panels.hpp"
#include "tile/pack_block.hpp"

namespace moeloom::packed {

/// What rows are multiplied by: a right side [numbers, cols] a group.
struct RightSides {
  Index groups = 0;
  Index numbers = 0;
  Index cols = 0;
};

/// One group's part of a product: these panels of y's columns from x, of which it sees its own rows alone.
struct Task {
  Index group = 0;
  Stretch panels;
  ConstRows x;
  MatrixView y;
};

/// Throws ShapeError for rows that are neither fp32 nor of Element.
template <typename Element>
void check_that_it_reads(ConstRows rows) {
  require(rows.type() == DType::kF32 || rows.type() == Element::kType,
          "bf16 rows are for bf16 products, and this one multiplies fp32");
}

/// The most that one task computes. Between tasks messages are moved, so that it must not last.
struct TaskSize {
  Index rows = 0;
  Index cols = 0;
};
/// A task packs its rows once, which is more beside matrices than beside other tiles.
template <typename Element>
inline constexpr Index kMostCols = kOfMatrices<Element> ? 4096 : 1024;

/// body(task) on the rank's threads for all of y = x times `sides`: one list of tasks over (group, column
/// block, row block). Throws ShapeError unless x, rows and y fit the sides.
void for_each_task(const RightSides& sides, ConstRows x, const GroupedRows& rows, MatrixView y, TaskSize most,
                   const std::function<void(const Task&)>& body);

/// y (+)= x times each master as Side sees it.
template <typename Element, typename Side>
void multiply_masters(const GroupedWeights& masters, ConstRows x, const GroupedRows& rows, MatrixView y,
                      Write mode = Write::kReplace);

}  // namespace moeloom::packed
