#include "cli/attempt.hpp"

#include <new>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Texts = std::vector<std::string>;

TEST(AttemptAll, GoesOnAfterEachMistakeAndKeepsAllOfThem) {
  Texts violations = {"first"};
  attempt_all(violations, [] {});
  attempt_all(violations, [] { throw ConfigError({"second", "third"}); });
  attempt_all(violations, [] { throw IoError("cannot read x"); });
  EXPECT_EQ(violations, (Texts{"first", "second", "third", "cannot read x"}));
}

TEST(AttemptAll, LetsThroughWhatIsNoMistakeOfAPerson) {
  Texts violations;
  EXPECT_THROW(attempt_all(violations, [] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_TRUE(violations.empty());
}

}  // namespace
}  // namespace moeloom
