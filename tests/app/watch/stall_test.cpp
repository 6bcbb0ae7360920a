#include "watch/stall.hpp"

#include <cmath>

#include "watch/stall_watch.hpp"
#include "watch/watcher.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Ranks = std::vector<std::optional<RankPosition>>;

Position in_layer(Index layer, Phase phase, std::string call = {}) {
  Position position;
  position.activity = Activity::kTraining;
  position.step = 4;
  position.micro_batch = 0;
  position.layer = layer;
  position.phase = phase;
  position.call = std::move(call);
  return position;
}

Ranks ranks_at(const std::vector<Position>& positions) {
  Ranks ranks;
  for (std::size_t rank = 0; rank < positions.size(); ++rank)
    ranks.push_back(RankPosition{.rank = static_cast<Index>(rank),
                                 .host = "b",
                                 .process = 100 + static_cast<Index>(rank),
                                 .state = 'S',
                                 .seconds = 31,
                                 .position = positions[rank]});
  return ranks;
}

Position waiting() {
  return in_layer(2, Phase::kCombine, "MPI_Waitall");
}

TEST(Stall, NamesTheRankThatIsStopped) {
  Ranks ranks = ranks_at({waiting(), in_layer(2, Phase::kExperts), waiting()});
  ranks[1]->state = 'T';
  const Stall stall = find_stall(ranks);
  EXPECT_EQ(stall.cause, StallCause::kStopped);
  EXPECT_EQ(stall.ranks, (std::vector<Index>{1}));
  EXPECT_EQ(
      stall_text(stall, ranks),
      "stalled: no rank has moved for 31 s; rank 1 (process 101 on b) is stopped in step 4, micro-batch 0, "
      "layer 2, forward, experts; ranks 0, 2 wait in step 4, micro-batch 0, layer 2, forward, combine, in "
      "MPI_Waitall");
}

TEST(Stall, NamesTheRankThatIsNotAsFar) {
  EXPECT_EQ(find_stall(ranks_at({waiting(), in_layer(1, Phase::kCombine), waiting()})).ranks,
            (std::vector<Index>{1}));
  EXPECT_EQ(find_stall(ranks_at({waiting(), in_layer(2, Phase::kExperts), waiting()})).ranks,
            (std::vector<Index>{1}))
      << "of ranks in one layer the one that computes";
  Position loss = in_layer(-1, Phase::kLoss), early = in_layer(-1, Phase::kEmbed);
  loss.backward = true;
  EXPECT_EQ(find_stall(ranks_at({loss, waiting()})).ranks, (std::vector<Index>{1})) << "before the loss";
  EXPECT_EQ(find_stall(ranks_at({early, waiting()})).ranks, (std::vector<Index>{0})) << "before the layers";
  Position back = waiting(), end = in_layer(-1, Phase::kReduce);
  back.backward = end.backward = true;
  EXPECT_EQ(find_stall(ranks_at({back, end})).ranks, (std::vector<Index>{0}));
  EXPECT_EQ(find_stall(ranks_at({loss, back})).ranks, (std::vector<Index>{0}));
  Position further = waiting();
  further.step = 5;
  EXPECT_EQ(find_stall(ranks_at({further, end})).ranks, (std::vector<Index>{1}));
  EXPECT_EQ(find_stall(ranks_at({waiting(), in_layer(2, Phase::kCombine), end, end})).ranks,
            (std::vector<Index>{1}))
      << "not rank 0, which waits for it beside others that are further";
}

TEST(Stall, NamesTheRankThatIsInNoCallWhereAllOthersAre) {
  EXPECT_EQ(
      find_stall(ranks_at({in_layer(-1, Phase::kReduce, "MPI_Waitall"), in_layer(-1, Phase::kReduce)})).ranks,
      (std::vector<Index>{1}));
  Position recording = in_layer(-1, Phase::kOther), saving = recording;
  saving.activity = Activity::kSaving;
  saving.call = "MPI_Allgather";
  EXPECT_EQ(find_stall(ranks_at({recording, saving})).ranks, (std::vector<Index>{0}))
      << "what follows a step comes after it";
}

TEST(Stall, SaysWhoseWatcherIsSilent) {
  Ranks ranks = ranks_at({waiting(), waiting(), waiting()});
  ranks[2].reset();
  const Stall stall = find_stall(ranks);
  EXPECT_EQ(stall.cause, StallCause::kSilent);
  EXPECT_EQ(stall.ranks, (std::vector<Index>{2}));
  EXPECT_NE(stall_text(stall, ranks).find("nothing is heard of rank 2; ranks 0, 1 wait in "),
            std::string::npos);
}

TEST(Stall, IsOneOfAllTogetherWhereNobodyHoldsTheOthersUp) {
  const Ranks ranks = ranks_at({waiting(), waiting()});
  const Stall stall = find_stall(ranks);
  EXPECT_EQ(stall.cause, StallCause::kAllTogether);
  EXPECT_TRUE(stall.ranks.empty());
  EXPECT_NE(stall_text(stall, ranks).find("all ranks wait for each other: ranks 0, 1 wait in "),
            std::string::npos);
}

TEST(Stall, IsNoneWhereARankMovesOrSomebodyStoppedTheWholeJob) {
  Ranks ranks = ranks_at({waiting(), waiting()});
  ranks[0]->moves = true;
  EXPECT_EQ(find_stall(ranks).cause, StallCause::kNone);
  ranks[0]->moves = false;
  ranks[0]->state = ranks[1]->state = 'T';
  EXPECT_EQ(find_stall(ranks).cause, StallCause::kNone);
}

TEST(Stall, PositionsGoThroughAFileUnchanged) {
  RankPosition rank = *ranks_at({waiting()})[0];
  rank.position.backward = true;
  rank.position.waits_for = 7;
  rank.position.moves = 1234567;
  rank.moves = true;
  const RankPosition read = RankPosition::from(Document::parse(rank.to_document().dump(), "here"));
  EXPECT_EQ(read.to_document().dump(), rank.to_document().dump());
  EXPECT_EQ(text_of(read.position),
            "step 4, micro-batch 0, layer 2, backward, combine, in MPI_Waitall for rank 7");
  rank.position.activity = Activity::kValidating;
  EXPECT_EQ(text_of(rank.position),
            "validating after step 4, layer 2, backward, combine, in MPI_Waitall for rank 7");
  Position saving;
  saving.activity = Activity::kSaving;
  saving.step = 4;
  EXPECT_EQ(text_of(saving), "saving after step 4");
}

TEST(Stall, TheTimeAllowedFollowsTheLongestStep) {
  EXPECT_EQ(stall_limits({}, {}).step, 300);
  EXPECT_EQ(stall_limits({}, 0.5).step, 30);
  EXPECT_EQ(stall_limits({}, 9.0).step, 90);
  EXPECT_EQ(stall_limits({}, 9.0).files, 1800);
  EXPECT_EQ(stall_limits({}, 9.0).start, 600);
  EXPECT_EQ(stall_limits(5.0, 100.0).step, 5);
  EXPECT_EQ(stall_limits(5.0, 100.0).files, 50);
  EXPECT_EQ(stall_limits(5.0, 100.0).start, 50);
  EXPECT_TRUE(std::isinf(stall_limits(0.0, 100.0).step))
      << "nobody ends the job; the watcher still cleans up";
}

TEST(Stall, TheTimeAllowedIsThatOfWhatTheRankDoes) {
  WatchOrder order;
  order.step_seconds = 1;
  order.file_seconds = 2;
  order.start_seconds = 3;
  const auto limit = [&](Activity activity) {
    Position position;
    position.activity = activity;
    return limit_at(position, order);
  };
  EXPECT_EQ(limit(Activity::kStarting), 3);
  for (const Activity files : {Activity::kLoading, Activity::kSaving, Activity::kEnding})
    EXPECT_EQ(limit(files), 2);
  for (const Activity step : {Activity::kTraining, Activity::kValidating}) EXPECT_EQ(limit(step), 1);
}

}  // namespace
}  // namespace moeloom
