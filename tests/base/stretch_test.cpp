#include "moeloom/base/stretch.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Stretch, EndsBeforeItsEndAndMayBeCountedFromAnotherPlace) {
  constexpr Stretch keys{5, 9};
  EXPECT_EQ(keys.size(), 4);
  EXPECT_EQ(keys.after(3).begin, 2);
  EXPECT_EQ(keys.after(3).end, 6);
  EXPECT_EQ(Stretch{}.size(), 0);
}

}  // namespace
}  // namespace moeloom
