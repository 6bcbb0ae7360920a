#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

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

TEST(Cause, IsWhoseErrorItIs) {
  EXPECT_EQ(cause_of(IoError("x")), Cause::kData);
  EXPECT_EQ(cause_of(DiskError("x")), Cause::kDisk);
  EXPECT_EQ(cause_of(CorruptError("x")), Cause::kCorrupt);
  EXPECT_EQ(cause_of(MpiError("x")), Cause::kMpi);
  EXPECT_EQ(cause_of(ShapeError("x")), Cause::kRequest);
  const auto of_file = [](std::errc error) {
    return cause_of(std::filesystem::filesystem_error("x", std::make_error_code(error)));
  };
  EXPECT_EQ(of_file(std::errc::permission_denied), Cause::kData);
  EXPECT_EQ(of_file(std::errc::no_space_on_device), Cause::kDisk);
  EXPECT_EQ(cause_of(std::bad_alloc()), Cause::kRequest);
  EXPECT_EQ(cause_of(ConfigError({"x"})), Cause::kRequest);
  EXPECT_EQ(cause_of(ConfigError({"x"}, Cause::kData)), Cause::kData);
  EXPECT_EQ(cause_of(AgreedError("x", Cause::kDisk)), Cause::kDisk);
}

TEST(Cause, OfWhatTheSystemRefusesIsByItsNumber) {
  EXPECT_THROW(throw_io_error("x", ENOSPC), DiskError);
  EXPECT_THROW(throw_io_error("x", EROFS), DiskError);
  EXPECT_EQ(testing::message_of<IoError>([] { throw_io_error("cannot open a", ENOENT); }),
            "cannot open a: No such file or directory");
  try {
    throw_io_error("x", ENOENT);
  } catch (const IoError& error) {
    EXPECT_EQ(cause_of(error), Cause::kData);
  }
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
