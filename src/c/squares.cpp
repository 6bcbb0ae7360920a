// Sums of squares, of which norms of gradients are made.
#include "tensor/squares.hpp"

#include "moeloom/base/parallel.hpp"

#include <cstring>
#include <vector>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// Elements that a task adds up, whatever the number of threads, so that bits do not depend on it.
constexpr Index kBlock = Index{1} << 15;

double squares_of(const ml_array& array) {
  const RowsIn rows(array, "x", InPlace::kFlat);
  const std::span<const float> numbers = rows.flat();
  const Index count = std::ssize(numbers);
  std::vector<double> sums(at((count + kBlock - 1) / kBlock));
  parallel_blocks(count, kBlock, [&](Index begin, Index end) {
    sums[at(begin / kBlock)] = moeloom::sum_of_squares(numbers.subspan(at(begin), at(end - begin)));
  });
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_squares(const ml_array* x, const ml_array* sums) {
  return guarded([&] {
    const ml_array& all = check_array(x, "x");
    check(all.ndim >= 2, [] { return "x has one dimension; expected [n, ...]"; });
    if (check_array(sums, "sums", {all.shape[0]}).dtype != ML_F64) refuse_type(*sums, "sums", "ML_F64");
    for (moeloom::Index i = 0; i < all.shape[0]; ++i) {
      const double sum = squares_of(part_of(all, i));
      std::memcpy(static_cast<std::byte*>(sums->data) + moeloom::at(i) * sizeof(sum), &sum, sizeof(sum));
    }
  });
}
