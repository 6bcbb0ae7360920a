#include "moeloom/base/errors.hpp"

#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Require, NamesTheCallersFileAndLine) {
  const int line = __LINE__ + 1;
  const std::string message = testing::message_of<ShapeError>([] { require(false, "rows must match"); });
  EXPECT_EQ(message, "rows must match (errors_test.cpp:" + std::to_string(line) + ")");
  EXPECT_NO_THROW(require(true, "never said"));
}

TEST(ConfigError, ListsEveryViolationOnItsLine) {
  EXPECT_STREQ(ConfigError({"ep = 3 does not divide 8", "lr must be positive"}).what(),
               "ep = 3 does not divide 8\nlr must be positive");
  EXPECT_STREQ(ConfigError({"one"}).what(), "one");
  EXPECT_STREQ(ConfigError({}).what(), "");
  EXPECT_EQ(ConfigError({"a", "b"}).violations(), (std::vector<std::string>{"a", "b"}));
}

TEST(Errors, AreAllCaughtAsError) {
  EXPECT_THROW(throw ShapeError("x"), Error);
  EXPECT_THROW(throw IoError("x"), Error);
  EXPECT_THROW(throw MpiError("x"), Error);
  EXPECT_THROW(throw AgreedError("x"), Error);
  EXPECT_THROW(throw ConfigError({"x"}), Error);
}

}  // namespace
}  // namespace moeloom
