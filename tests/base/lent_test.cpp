#include "base/lent.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Lent, IsThereWhileItLivesAndThenBack) {
  std::vector<int> own, shared(100, 7);
  const int* const memory = shared.data();
  {
    const Lent lent(own, shared, true);
    EXPECT_EQ(own.data(), memory);
    EXPECT_TRUE(shared.empty());
    own[0] = 8;
  }
  EXPECT_TRUE(own.empty());
  EXPECT_EQ(shared.data(), memory);
  EXPECT_EQ(shared[0], 8);
}

TEST(Lent, DoesNothingWhereNothingIsLent) {
  std::vector<int> own, shared(100, 7);
  const Lent lent(own, shared, false);
  EXPECT_TRUE(own.empty());
}

}  // namespace
}  // namespace moeloom
