// y = x times one right side a group, on register tiles: what grouped and dense products share.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

#include "master_panels.hpp"
#include "pack_block.hpp"

namespace moeloom::packed {

/// One group's part of a product: these panels of y from these rows of x.
struct Task {
  Index group = 0;
  PanelRange panels;
  Index first = 0;
  Index rows = 0;
};

/// One list of tasks over (group, column block, row block of at most `block_rows`) for all threads.
std::vector<Task> list_tasks(const GroupedRows& rows, Index panels, Index block_rows);

/// y (+)= x times each master as Side sees it.
template <typename Element, typename Side>
void multiply_masters(const GroupedWeights& masters, ConstMatrixView x, const GroupedRows& rows, MatrixView y,
                      Write mode = Write::kReplace);

}  // namespace moeloom::packed
