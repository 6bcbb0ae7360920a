#include "tensor/pages.hpp"

#include "moeloom/tensor/matrix.hpp"

#include <fstream>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Pages of this process that are in memory.
Index resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Index size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(Pages, AreZerosWhereTheyWereDroppedAndLeftAloneElsewhere) {
  constexpr Index kCount = 5000;
  for (const auto& [begin, end] : std::vector<std::pair<Index, Index>>{
           {0, 0}, {7, 8}, {0, kCount}, {1, kCount - 1}, {1000, 1003}, {1023, 3077}, {1024, 2048}}) {
    Matrix values(1, kCount);
    fill(values, 1.5f);
    drop(values.view().flat().subspan(at(begin), at(end - begin)));
    for (Index i = 0; i < kCount; ++i)
      ASSERT_EQ(values.view()(0, i), i >= begin && i < end ? 0.0f : 1.5f) << i;
  }
}

TEST(Pages, TakeNoMemoryUntilTheyAreWritten) {
  constexpr Index kCount = Index{16} << 20;
  Matrix values(1, kCount);
  fill(values, 1.0f);
  const Index before = resident_bytes();
  drop(values.view().flat());
  EXPECT_LE(resident_bytes(), before - kCount * Index{sizeof(float)} * 9 / 10);
}

}  // namespace
}  // namespace moeloom
