// A task copies its rows once and takes many columns; tasks of one group share nothing that is written.
#include "tile/tiled_products.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <memory>
#include <type_traits>

#include "tile/few_rows.hpp"

namespace moeloom::packed {
namespace {

/// A task copies its rows once, so it takes many columns, but not so many that threads are left without one.
Index column_parts(const GroupedRows& rows, Index panels, TaskSize size) {
  constexpr Index kFewestCols = 128, kTasksPerThread = 4;
  Index row_blocks = 0;
  for (Index g = 0; g < rows.groups(); ++g) row_blocks += ceil_div(rows.of_group(g), size.rows);
  const Index wanted = ceil_div(kTasksPerThread * threads(), std::max<Index>(1, row_blocks));
  const Index most = std::max<Index>(1, panels * kTileCols / kFewestCols);
  const Index least = ceil_div(panels * kTileCols, size.cols);
  return threads() == 1 ? least : std::max(least, std::min(wanted, most));
}

/// A group's rows are split evenly, so that no task is left with a few. The row blocks of the same columns
/// follow each other: their weights are still in cache.
std::vector<Task> list_tasks(ConstRows x, const GroupedRows& rows, MatrixView y, TaskSize size) {
  const Index panels = ceil_div(y.cols, kTileCols);
  const Index column_blocks = column_parts(rows, panels, size);
  std::vector<Task> tasks;
  Index first = 0;
  for (Index g = 0; g < rows.groups(); ++g) {
    const Index count = rows.of_group(g), parts = ceil_div(count, size.rows);
    for (Index block = 0; block < column_blocks; ++block) {
      const auto [begin, end] = even_part(panels, column_blocks, block);
      for (Index part = 0; part < parts; ++part) {
        const auto [top, bottom] = even_part(count, parts, part);
        tasks.push_back({g,
                         {begin, end},
                         x.rows_from(first + top, bottom - top),
                         y.rows_from(first + top, bottom - top)});
      }
    }
    first += count;
  }
  return tasks;
}

}  // namespace

void for_each_task(const RightSides& sides, ConstRows x, const GroupedRows& rows, MatrixView y, TaskSize most,
                   const std::function<void(const Task&)>& body) {
  require(rows.groups() == sides.groups, "grouped matmul needs the rows of every group");
  rows.check(x, y);
  if (x.rows() == 0) return;
  require(x.cols() == sides.numbers && y.cols == sides.cols, "grouped matmul: columns must fit the weights");
  const std::vector<Task> tasks = list_tasks(x, rows, y, most);
  parallel_for(static_cast<Index>(tasks.size()), [&](Index i) { body(tasks[static_cast<std::size_t>(i)]); });
}

namespace {

/// A thread's memory; pages that its tasks do not touch cost nothing.
template <typename Element>
struct Workspace {
  MasterWorkspace<Element> panels;
  FewRowsWorkspace few;
};

template <typename Element, typename Side>
void multiply_task(ConstRows master, const Task& task, Write mode, Workspace<Element>& work) {
  if constexpr (std::is_same_v<Element, Fp32> && std::is_same_v<Side, Along>)
    if (few_rows_pay(task.x.rows()) && master.type() == DType::kF32) {
      const Index first = task.panels.begin * kTileCols;
      const Index cols = std::min(task.panels.end * kTileCols, master.rows()) - first;
      return multiply_few_rows(master.fp32().rows_from(first, cols), task.x.fp32(),
                               task.y.cols_from(first, cols), mode, work.few);
    }
  multiply_master<Element, Side>(master, task.panels, task.x, task.y, mode, work.panels);
}

}  // namespace

template <typename Element, typename Side>
void multiply_masters(const GroupedWeights& masters, ConstRows x, const GroupedRows& rows, MatrixView y,
                      Write mode) {
  masters.check();
  const ConstMatrixView shape{nullptr, masters.out(), masters.in(), masters.in()};
  const std::unique_ptr<Workspace<Element>[]> workspaces(new Workspace<Element>[at(threads())]);
  for_each_task({masters.groups, Side::numbers(shape), Side::cols(shape)}, x, rows, y,
                {kMasterRows, kMostCols<Element>}, [&](const Task& task) {
                  multiply_task<Element, Side>(masters.group(task.group), task, mode,
                                               workspaces[at(thread_index())]);
                });
}

template void multiply_masters<Fp32, Along>(const GroupedWeights&, ConstRows, const GroupedRows&, MatrixView,
                                            Write);
template void multiply_masters<Fp32, Down>(const GroupedWeights&, ConstRows, const GroupedRows&, MatrixView,
                                           Write);
template void multiply_masters<Bf16, Along>(const GroupedWeights&, ConstRows, const GroupedRows&, MatrixView,
                                            Write);
template void multiply_masters<Bf16, Down>(const GroupedWeights&, ConstRows, const GroupedRows&, MatrixView,
                                           Write);
template void multiply_masters<Bf16Matrix, Along>(const GroupedWeights&, ConstRows, const GroupedRows&,
                                                  MatrixView, Write);
template void multiply_masters<Bf16Matrix, Down>(const GroupedWeights&, ConstRows, const GroupedRows&,
                                                 MatrixView, Write);

}  // namespace moeloom::packed
