#include "moeloom/base/violations.hpp"

#include <limits>
#include <new>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Violations, AreNoneWhereEverythingHolds) {
  Violations violations;
  violations.unless(true, "x");
  violations.unless_between("n", 1, 1, 1);
  violations.unless_at_least(0, "n", kLargestCount);
  violations.unless_positive("x", 1e-300);
  violations.unless_not_negative("x", 0);
  violations.unless_below_one("x", 0);
  EXPECT_TRUE(violations.list().empty());
}

TEST(Violations, SayWhatWasGivenAndKeepTheirOrder) {
  Violations violations;
  violations.unless(false, "first");
  violations.unless_between("n", 4, 1, 3);
  violations.unless_at_least(1, "n", 0);
  violations.unless_at_least(1, "n", kLargestCount + 1);
  violations.unless_positive("x", 0);
  violations.unless_not_negative("x", -0.5);
  violations.unless_below_one("x", 1);
  violations.add("alone");
  violations.add(std::vector<std::string>{"last"});
  EXPECT_EQ(violations.list(),
            (std::vector<std::string>{
                "first", "n = 4 must lie between 1 and 3", "n = 0 must be at least 1",
                "n = 1099511627777 is too large; at most 1099511627776", "x = 0 must be positive and finite",
                "x = -0.5 must be finite and not negative", "x = 1 must lie in [0, 1)", "alone", "last"}));
}

TEST(Violations, GoOnAfterEachFailedCheckAndAreThrownTogether) {
  Violations violations;
  EXPECT_NO_THROW(violations.throw_if_any());
  violations.add("first");
  violations.attempt([] {});
  violations.attempt([] { throw ConfigError({"second", "third"}); });
  violations.attempt([] { throw IoError("cannot read x"); });
  const std::vector<std::string> all = {"first", "second", "third", "cannot read x"};
  EXPECT_EQ(violations.list(), all);
  try {
    violations.throw_if_any();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.violations(), all);
  }
}

TEST(Violations, AreOfFilesAloneOnlyWhereNothingElseIsWrong) {
  Violations files;
  files.attempt([] { throw IoError("cannot read x"); });
  EXPECT_EQ(files.cause(), Cause::kData);
  files.attempt([] { throw DiskError("cannot write y"); });
  EXPECT_EQ(files.cause(), Cause::kDisk);
  files.add("steps = 0");
  EXPECT_EQ(files.cause(), Cause::kRequest);
  files.attempt([] { throw IoError("cannot read z"); });
  EXPECT_EQ(files.cause(), Cause::kRequest);
}

TEST(Violations, LetThroughWhatIsNoMistakeOfAPerson) {
  Violations violations;
  EXPECT_THROW(violations.attempt([] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_TRUE(violations.empty());
}

TEST(Violations, TakeNoNumberThatIsNotFinite) {
  for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    Violations violations;
    violations.unless_positive("x", bad);
    violations.unless_not_negative("x", bad);
    violations.unless_below_one("x", bad);
    EXPECT_EQ(violations.list().size(), 3u) << bad;
  }
}

}  // namespace
}  // namespace moeloom
