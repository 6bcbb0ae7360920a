#include "moeloom/tensor/pages.hpp"

#include "moeloom/tensor/matrix.hpp"

#include <fstream>
#include <sys/mman.h>
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

TEST(Pages, OfSharedMemoryAreDroppedForAll) {
  constexpr std::size_t kBytes = 1 << 20;
  const int file = ::memfd_create("pages", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, kBytes), 0);
  const auto map = [&] {
    return static_cast<float*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  };
  float *const one = map(), *const other = map();
  std::fill_n(one, kBytes / sizeof(float), 2.0f);
  drop_shared({one + 100, 100000});
  EXPECT_EQ(other[99], 2.0f);
  EXPECT_EQ(other[100], 0.0f);
  EXPECT_EQ(other[100099], 0.0f);
  EXPECT_EQ(other[100100], 2.0f);
  ::munmap(one, kBytes);
  ::munmap(other, kBytes);
  ::close(file);
}

}  // namespace
}  // namespace moeloom
