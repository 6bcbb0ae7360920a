#include "measure/sweep/file.hpp"

#include "moeloom/base/errors.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "sweep/rows_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::point_row;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

EpRow row_at(Index ranks, Index ep) {
  return point_row({.ranks = ranks, .ep = ep, .tokens = 64}, 1);
}

TEST(SweepFile, KeepsWhatWasAppendedForTheNextSweep) {
  const TemporaryFolder folder;
  {
    PointsFile file(folder / "new");
    EXPECT_TRUE(file.rows().empty());
    file.append(row_at(2, 1));
    EXPECT_EQ(read_points(folder / "new" / "points.jsonl").size(), 1u) << "flushed at once";
    file.append(row_at(2, 2));
  }
  const PointsFile again(folder / "new");
  EXPECT_EQ(again.rows().size(), 2u);
  EXPECT_TRUE(again.has(key_of(row_at(2, 2))));
  EXPECT_FALSE(again.has(key_of(row_at(4, 2))));
}

TEST(SweepFile, IsOfOneSweepAtATime) {
  const TemporaryFolder folder;
  {
    PointsFile first(folder.path());
    const std::string message = testing::message_of<IoError>([&] { PointsFile(folder.path()); });
    EXPECT_NE(message.find("another sweep writes to " + folder.path().string()), std::string::npos)
        << message;
    first.append(row_at(2, 1));
  }
  EXPECT_EQ(PointsFile(folder.path()).rows().size(), 1u) << "what the first appended";
}

TEST(SweepFile, DropsALineThatAKillCutShort) {
  const TemporaryFolder folder;
  const auto path = folder / "points.jsonl";
  { PointsFile(folder.path()).append(row_at(2, 1)); }
  const std::string whole = read_bytes(path);
  for (const std::size_t length : {std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
    write_bytes(path, whole + whole.substr(0, length));
    PointsFile file(folder.path());
    EXPECT_EQ(file.rows().size(), 1u) << length;
    file.append(row_at(2, 2));
    EXPECT_EQ(read_points(path).size(), 2u) << length;
  }
}

TEST(SweepFile, RefusesALineThatIsNoPointRatherThanLoseIt) {
  const TemporaryFolder folder;
  { PointsFile(folder.path()).append(row_at(2, 1)); }
  const std::string before = read_bytes(folder / "points.jsonl") + "{\"mode\": \"layer\"}\n";
  write_bytes(folder / "points.jsonl", before);
  const std::string message = testing::message_of<IoError>([&] { PointsFile(folder.path()); });
  EXPECT_NE(message.find("points.jsonl:2: "), std::string::npos) << message;
  EXPECT_NE(message.find("choose another folder"), std::string::npos) << message;
  EXPECT_EQ(read_bytes(folder / "points.jsonl"), before);
}

}  // namespace
}  // namespace moeloom
