#include "record/duration_text.hpp"

#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(DurationText, ReadsLikeAClock) {
  const std::vector<std::pair<double, std::string>> cases = {{0, "0 s"},
                                                             {59.4, "59 s"},
                                                             {59.6, "1:00"},
                                                             {130, "2:10"},
                                                             {3661, "1:01:01"},
                                                             {-1, "?"},
                                                             {std::numeric_limits<double>::infinity(), "?"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(duration_text(seconds), text);
}

}  // namespace
}  // namespace moeloom
