// Grouped matmul on packed weights: one list of tasks over (group, column block, row block) for all threads.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "packed_weight_grad.hpp"
#include "packed_weights.hpp"

namespace moeloom {
namespace {

struct Task {
  Index group = 0;
  packed::PanelRange panels;
  Index first = 0;
  Index rows = 0;
};

/// A task copies its rows once, so it takes many columns, but not so many that threads are left without one.
Index column_parts(const GroupedRows& rows, Index panels) {
  constexpr Index kMostCols = 1024, kFewestCols = 128, kTasksPerThread = 4;
  Index row_blocks = 0;
  for (Index g = 0; g < rows.groups(); ++g) row_blocks += ceil_div(rows.of_group(g), packed::kBlockRows);
  const Index wanted = ceil_div(kTasksPerThread * threads(), std::max<Index>(1, row_blocks));
  const Index most = std::max<Index>(1, panels * packed::kTileCols / kFewestCols);
  const Index least = ceil_div(panels * packed::kTileCols, kMostCols);
  return threads() == 1 ? least : std::max(least, std::min(wanted, most));
}

/// A group's rows are split evenly, so that no task is left with a few. The row blocks of the same columns
/// follow each other: their weights are still in cache.
std::vector<Task> list_tasks(const GroupedRows& rows, Index panels) {
  const Index column_blocks = column_parts(rows, panels);
  std::vector<Task> tasks;
  Index first = 0;
  for (Index g = 0; g < rows.groups(); ++g) {
    const Index count = rows.of_group(g), parts = ceil_div(count, packed::kBlockRows);
    for (Index block = 0; block < column_blocks; ++block) {
      const auto [begin, end] = packed::even_part(panels, column_blocks, block);
      for (Index part = 0; part < parts; ++part) {
        const auto [top, bottom] = packed::even_part(count, parts, part);
        tasks.push_back({g, {begin, end}, first + top, bottom - top});
      }
    }
    first += count;
  }
  return tasks;
}

template <typename Element>
void multiply_groups(const PackedWeights& weights, const packed::Face& face, ConstMatrixView x,
                     const GroupedRows& rows, MatrixView y) {
  require(!weights.empty(), "grouped matmul needs packed weights; pack() was never called");
  require(weights.element() == Element::kType, "grouped matmul needs weights packed as its own element");
  require(rows.groups() == weights.state().groups, "grouped matmul needs the rows of every packed group");
  require(x.rows == rows.total() && y.rows == x.rows, "grouped matmul needs as many rows as its groups have");
  if (x.rows == 0) return;
  require(x.cols == face.numbers() && y.cols == face.cols(), "grouped matmul: columns must fit the weights");
  const std::vector<Task> tasks = list_tasks(rows, face.panels());
  parallel_for(static_cast<Index>(tasks.size()), [&](Index i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    face.multiply<Element>(task.group, task.panels, x.rows_from(task.first, task.rows),
                           y.rows_from(task.first, task.rows));
  });
}

template <typename Element>
void forward(const GroupedWeights&, const PackedWeights& packed, ConstMatrixView x, const GroupedRows& rows,
             MatrixView y) {
  multiply_groups<Element>(packed, packed.state().forward, x, rows, y);
}

template <typename Element>
void input_grad(const GroupedWeights&, const PackedWeights& packed, ConstMatrixView dy,
                const GroupedRows& rows, MatrixView dx) {
  multiply_groups<Element>(packed, packed.state().input_grad, dy, rows, dx);
}

template <typename Element>
GroupedMatmulKernel kernel_of() {
  return {.uses_packed = true,
          .element = Element::kType,
          .forward = forward<Element>,
          .input_grad = input_grad<Element>,
          .weight_grad = packed::grouped_weight_grad<Element>};
}

}  // namespace

GroupedMatmulKernel packed_grouped_matmul() {
  return kernel_of<packed::Fp32>();
}

GroupedMatmulKernel packed_bf16_grouped_matmul() {
  return kernel_of<packed::Bf16>();
}

std::string_view why_no_bf16() {
  if (!__builtin_cpu_supports("avx512bf16")) return "this CPU has no AVX512_BF16 instructions";
#ifdef __AVX512BF16__
  return {};
#else
  return "this program was built without AVX512_BF16 instructions";
#endif
}

bool cpu_has_bf16() {
  return why_no_bf16().empty();
}

}  // namespace moeloom
