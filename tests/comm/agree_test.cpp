#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"

#include <string>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// What agree() throws on this rank if rank r throws message_of(r); "" if nothing.
template <typename MessageOf>
std::string agreed_text(const Communicator& comm, MessageOf message_of) {
  try {
    agree(comm, [&] {
      if (const std::string message = message_of(comm.rank()); !message.empty()) throw IoError(message);
    });
  } catch (const AgreedError& error) {
    return error.what();
  }
  return "";
}

TEST(Agree, IsSilentWhereNoRankFails) {
  EXPECT_EQ(agreed_text(Communicator::world(), [](int) { return ""; }), "");
}

TEST(Agree, SaysAMessageOfAllRanksOnce) {
  EXPECT_EQ(agreed_text(Communicator::world(), [](int) { return "no such file"; }), "no such file");
}

TEST(Agree, NamesTheOneRankThatFailed) {
  const Communicator world = Communicator::world();
  for (int failing = 0; failing < world.size(); ++failing) {
    const std::string text =
        agreed_text(world, [&](int rank) { return rank == failing ? "disk full\nat byte 7" : ""; });
    const std::string who = world.size() == 1 ? "" : "rank " + std::to_string(failing) + ": ";
    EXPECT_EQ(text, who + "disk full\nat byte 7");
  }
}

TEST(Agree, GroupsRanksByTheirMessage) {
  const Communicator world = Communicator::world();
  if (world.size() < 4) GTEST_SKIP() << "needs 4 ranks";
  const auto message_of = [](int rank) {
    return rank == 2 ? "no room" : rank % 2 == 1 ? "a bad header" : "";
  };
  EXPECT_EQ(agreed_text(world, message_of), "ranks 1,3: a bad header\nrank 2: no room");
  const auto low_first = [](int rank) { return rank == 0 ? "z" : "a"; };
  EXPECT_EQ(agreed_text(world, low_first), "rank 0: z\nranks 1,2,3: a");
}

TEST(Agree, KeepsTheCauseOfTheLowestRank) {
  const Communicator world = Communicator::world();
  const int first = world.size() > 1 ? 1 : 0;
  try {
    agree(world, [&] {
      if (world.rank() == first) throw DiskError("full");
      if (world.rank() > first) throw IoError("gone");
    });
    FAIL() << "nothing was thrown";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.cause(), Cause::kDisk);
  }
}

TEST(Agree, GivesAnErrorWithoutTextAText) {
  EXPECT_NE(agreed_text(Communicator::world(), [](int) { return " "; }), "");
  EXPECT_THROW(agree(Communicator::world(), [] { throw Error(""); }), AgreedError);
}

TEST(Agree, NeedsNoMpiAlone) {
  EXPECT_EQ(agreed_text(Communicator::self(), [](int) { return "wrong"; }), "wrong");
  EXPECT_EQ(agreed_text(Communicator::self(), [](int) { return ""; }), "");
}

}  // namespace
}  // namespace moeloom
