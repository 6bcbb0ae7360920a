// Where golden tests look: a set that is not found may not look like one that passed.
#include "support/golden.hpp"

#include "moeloom/base/errors.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using namespace testing;

fs::path new_case(const fs::path& root, const std::string& name) {
  const fs::path folder = root / "blocks" / name;
  fs::create_directories(folder);
  write_bytes(folder / "meta.json", "{}");
  return folder;
}

TEST(Golden, IsLookedForInEveryNamedFolderAndThenInTheSource) {
  const TemporaryFolder one, two;
  new_case(one.path(), "a");
  new_case(two.path(), "b");
  const auto roots = golden_roots((one.path().string() + ':' + two.path().string()).c_str());
  ASSERT_EQ(roots.size(), 3u);
  EXPECT_EQ(roots[0], one.path());
  EXPECT_EQ(roots[1], two.path());
  EXPECT_EQ(roots[2], source_root() / "tests" / "data" / "golden");
  EXPECT_EQ(golden_roots("").back(), roots[2]);
  EXPECT_EQ(golden_roots(nullptr).back(), roots[2]);
}

TEST(Golden, RefusesAFolderWithoutData) {
  const TemporaryFolder good, empty;
  new_case(good.path(), "a");
  const std::string name = good.path().string();
  EXPECT_THROW(golden_roots(empty.path().c_str()), IoError);
  EXPECT_THROW(golden_roots((name + ':' + empty.path().string()).c_str()), IoError);
  EXPECT_THROW(golden_roots((name + "::" + name).c_str()), IoError);
}

TEST(Golden, TakesCasesOfOneNameFromEveryFolderButTheLast) {
  const TemporaryFolder one, two, last;
  const fs::path a1 = new_case(one.path(), "a"), c = new_case(one.path(), "c"),
                 a2 = new_case(two.path(), "a"), b = new_case(last.path(), "b");
  new_case(last.path(), "a");
  const std::vector<fs::path> roots = {one.path(), two.path(), last.path()};
  EXPECT_EQ(golden_cases("blocks", {}, roots), (std::vector<fs::path>{a1, a2, b, c}));
  EXPECT_THROW(golden_cases("models", {}, roots), IoError);
  EXPECT_THROW(golden_cases(
                   "blocks", [](const fs::path&) { return false; }, roots),
               IoError);
}

}  // namespace
}  // namespace moeloom
