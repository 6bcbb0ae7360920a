#include "cli/host_limits.hpp"

#include "moeloom/comm/session.hpp"

#include <map>
#include <string_view>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kMebi = Index{1} << 20;

HostLimits four_ranks(std::optional<double> quota, std::optional<SegmentRoom> segments, bool copies_refused) {
  return {.host = "h1",
          .ranks = 4,
          .processors = 8,
          .quota = quota,
          .segments = segments,
          .copies_refused = copies_refused};
}

SegmentRoom room(Index total, Index free) {
  return {"/dev/shm", 4 * kMebi, total * kMebi, free * kMebi};
}

bool holds(const std::vector<std::string>& sentences, const std::string& words) {
  return sentences.size() == 1 && sentences[0].find(words) != std::string::npos;
}

TEST(HostLimits, SayNothingWhereNothingIsMissing) {
  for (const HostLimits& limits : {four_ranks({}, {}, false), four_ranks(8, room(64, 60), false)}) {
    EXPECT_TRUE(host_answer(limits).violations.empty());
    EXPECT_TRUE(host_answer(limits).warnings.empty());
  }
}

TEST(HostLimits, AQuotaBelowTheProcessorsIsSaidWithBoth) {
  HostLimits limits = four_ranks(4.5, {}, false);
  EXPECT_TRUE(
      holds(host_answer(limits).notes, "host h1: a control group allows 4.5 of 8 processors; threads"));
  EXPECT_TRUE(host_answer(limits).warnings.empty());
  limits.threads = 2;
  EXPECT_TRUE(holds(host_answer(limits).warnings, "allows 4.5 of 8 processors; 4 rank(s) run 8 threads"));
  EXPECT_TRUE(host_answer(limits).notes.empty());
  EXPECT_TRUE(holds(host_answer(four_ranks(1.5, {}, false)).warnings, "4 rank(s) run 4 threads"));
}

TEST(HostLimits, RoomForNoSegmentIsRefusedAndForFewerThanRanksSaid) {
  const HostAnswer none = host_answer(four_ranks({}, room(64, 4), false));
  EXPECT_TRUE(holds(none.violations, "/dev/shm has 4 MiB free of 64 MiB, a rank needs 4 MiB of it"));
  EXPECT_TRUE(none.warnings.empty());
  const HostAnswer few = host_answer(four_ranks({}, room(15, 14), false));
  EXPECT_TRUE(holds(few.warnings, "/dev/shm holds 15 MiB, 4 ranks may use 16 MiB of it"));
  EXPECT_TRUE(few.violations.empty());
}

TEST(HostLimits, ASegmentLargerThanAnyHostIsRefused) {
  SegmentRoom segments = room(64, 60);
  segments.segment_bytes = INT64_MAX;
  EXPECT_TRUE(holds(host_answer(four_ranks({}, segments, false)).violations, "/dev/shm has 60 MiB free"));
}

TEST(HostLimits, RefusedCopiesAreSaid) {
  HostLimits limits = four_ranks({}, {}, true);
  EXPECT_TRUE(holds(host_answer(limits).warnings, "refuses process_vm_readv, so Open MPI is told"));
  limits.copies_asked = "OMPI_MCA_btl_vader_single_copy_mechanism=cma";
  EXPECT_TRUE(
      holds(host_answer(limits).warnings, "which OMPI_MCA_btl_vader_single_copy_mechanism=cma asks for"));
}

TEST(HostLimits, OfARankAloneOnItsHostAreItsProcessors) {
  HostLimits alone = four_ranks({}, room(1, 0), true);
  alone.ranks = 1;
  EXPECT_TRUE(host_answer(alone).warnings.empty());
  EXPECT_TRUE(host_answer(alone).violations.empty());
}

std::optional<SegmentRoom> segments(const std::map<std::string, std::string>& variables) {
  return limits_of_this_host([&](const std::string& name) {
           const auto found = variables.find(name);
           return found == variables.end() ? std::nullopt : std::optional(found->second);
         })
      .segments;
}

TEST(HostLimits, SegmentsAreLookedForWhereOpenMpiMakesThem) {
  if (!std::string_view(mpi_library_version()).starts_with("Open MPI")) GTEST_SKIP() << "another MPI";
  using Variable = std::pair<std::string, std::string>;
  const Variable two = {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                 root = {"OMPI_MCA_btl_vader_backing_directory", "/"};
  EXPECT_FALSE(segments({root})) << "one rank";
  ASSERT_TRUE(segments({two, root}));
  EXPECT_EQ(segments({two, root})->segment_bytes % (4 * kMebi), 0) << "4 MiB of Open MPI 4, 16 of 5";
  EXPECT_TRUE(segments({{"SLURM_STEP_TASKS_PER_NODE", "1,4"}, {"SLURM_NODEID", "1"}, root}));
  EXPECT_FALSE(segments({{"SLURM_STEP_TASKS_PER_NODE", "1,4"}, {"SLURM_NODEID", "0"}, root}));
  for (const char* btl : {"self,vader", "self,sm,tcp", "^openib", ""}) {
    const auto found =
        segments({two, root, {"OMPI_MCA_btl", btl}, {"OMPI_MCA_btl_vader_segment_size", "8388608"}});
    ASSERT_TRUE(found) << btl;
    EXPECT_EQ(found->folder, "/");
    EXPECT_EQ(found->segment_bytes, 8 * kMebi);
    EXPECT_GT(found->total_bytes, 0);
  }
  for (const char* btl : {"self,tcp", "^vader", "^openib,vader"})
    EXPECT_FALSE(segments({two, {"OMPI_MCA_btl", btl}})) << btl;
  EXPECT_FALSE(segments({two, {"OMPI_MCA_pml", "ucx"}}));
}

/// As ompi_info answers to the same settings; what is no int is not taken.
TEST(HostLimits, ASegmentHasTheSizeThatOpenMpiReads) {
  if (!std::string_view(mpi_library_version()).starts_with("Open MPI")) GTEST_SKIP() << "another MPI";
  const auto unset =
      segments({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_MCA_btl_vader_backing_directory", "/"}});
  ASSERT_TRUE(unset);
  const Index default_size = unset->segment_bytes;
  for (const auto& [text, bytes] :
       std::map<std::string, Index>{{"67108864", 64 * kMebi},
                                    {"64M", 64 * kMebi},
                                    {"64m", 64 * kMebi},
                                    {"64MB", 64 * kMebi},
                                    {"65536k", 64 * kMebi},
                                    {"1G", 1024 * kMebi},
                                    {"0x4000000", 64 * kMebi},
                                    {"0x40M", 64 * kMebi},
                                    {"0400000000", 64 * kMebi},
                                    {"64T", 2 * kMebi},  // the least that it makes
                                    {"-1", 2 * kMebi},
                                    {"", 2 * kMebi},
                                    {"2047M", 2047 * kMebi},
                                    {"2G", default_size},
                                    {"9223372036854775807", default_size},
                                    {"20000000000G", default_size}}) {
    const auto found = segments({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                 {"OMPI_MCA_btl_vader_backing_directory", "/"},
                                 {"OMPI_MCA_btl_vader_segment_size", text}});
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(found->segment_bytes, bytes) << text;
  }
}

}  // namespace
}  // namespace moeloom
