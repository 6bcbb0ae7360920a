#include "comm/process_memory.hpp"

#include "moeloom/tensor/matrix.hpp"

#include <cstring>

#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kBytes = Index{64} << 20;  // malloc takes no block of this size from what was freed before
constexpr Index kNoise = kBytes / 10;

TEST(ProcessMemory, GrowsWithWhatIsTouchedAndShrinksWithWhatIsFreed) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer keeps what was freed";
  const Index before = private_bytes();
  {
    const Matrix zeros(1024, kBytes / 4 / 1024);
    const Matrix touched = Matrix::copy_of(zeros);
    EXPECT_GT(private_bytes() - before, kBytes - kNoise);
  }
  EXPECT_LT(private_bytes() - before, kNoise);
}

TEST(ProcessMemory, OfSharedPagesCountsThoseThatThisRankOwnsHoweverManyItTouched) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), 64);
  const Index before = private_bytes();
  const NodeBlock block(memory, kBytes);
  std::memset(block.data(), 1, static_cast<std::size_t>(kBytes));
  EXPECT_LT(private_bytes() - before, kNoise) << "as if they were a peer's";
  EXPECT_GE(held_bytes(memory.get()) - before, kBytes);
  EXPECT_LT(held_bytes(memory.get()) - before, kBytes + kNoise);
  EXPECT_LT(held_bytes(nullptr) - before, kNoise);
}

}  // namespace
}  // namespace moeloom
