#include "moeloom/kernels/grouped_matmul.hpp"

#include <numeric>

namespace moeloom {

Index GroupedRows::of_group(Index g) const {
  const auto first = rows_per_source.begin() + static_cast<std::ptrdiff_t>(g * sources);
  return std::reduce(first, first + static_cast<std::ptrdiff_t>(sources), Index{0});
}

Index GroupedRows::total() const {
  return std::reduce(rows_per_source.begin(), rows_per_source.end(), Index{0});
}

}  // namespace moeloom
