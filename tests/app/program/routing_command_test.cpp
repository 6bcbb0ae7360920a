// Each router and each way to keep load even, from the command line to the metrics and the model.
#include <cmath>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

class RoutingCommand : public testing::ProgramTest {
 protected:
  std::vector<StepMetrics> steps_of(const std::string& flags) {
    const Outcome outcome = shell(train(2, "--experts 8 --steps 3 --overwrite true " + flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return read_metrics(fs::path(path("run")) / "metrics.jsonl");
  }
};

TEST_F(RoutingCommand, EveryRouterHasTheSameLossesAtEveryEp) {
  for (const char* flags :
       {"--router expert-choice", "--router hash", "--router-dtype fp64", "--capacity-factor 0.5",
        "--aux-loss pooled", "--aux-loss-over sequence", "--aux-loss-over global-batch --accumulate 2",
        "--force-routing zipf", "--row-budget 300"}) {
    SCOPED_TRACE(flags);
    const auto without = steps_of("--ep 1 " + std::string(flags)),
               with = steps_of("--ep 2 " + std::string(flags));
    ASSERT_EQ(without.size(), 3u);
    ASSERT_EQ(with.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::isfinite(with[i].loss));
      EXPECT_NEAR(with[i].loss, without[i].loss, 1e-5 * without[i].loss);
      EXPECT_NEAR(with[i].aux_loss, without[i].aux_loss, 1e-5);
      EXPECT_NEAR(with[i].layers.at(0).dropped_share, without[i].layers.at(0).dropped_share, 1e-4);
    }
  }
}

TEST_F(RoutingCommand, ALossOverSequencesOrTheGlobalBatchIsThatOfAnyAccumulation) {
  for (const char* over : {"sequence", "global-batch"}) {
    SCOPED_TRACE(over);
    const std::string flags = "--ep 2 --aux-loss layer --aux-loss-over " + std::string(over);
    const auto whole = steps_of(flags), parts = steps_of(flags + " --accumulate 2");
    ASSERT_EQ(whole.size(), parts.size());
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(whole[i].aux_loss, parts[i].aux_loss, 2e-4) << i;
  }
}

TEST_F(RoutingCommand, DroppedSlotsAreReportedAndExpertsThatChooseAreEven) {
  EXPECT_GT(steps_of("--ep 2 --capacity-factor 0.5").at(0).layers.at(0).dropped_share, 0.2);
  EXPECT_EQ(steps_of("--ep 2").at(0).layers.at(0).dropped_share, 0);
  EXPECT_NEAR(steps_of("--ep 2 --router expert-choice").at(2).layers.at(0).max_over_mean, 1, 1e-9);
  EXPECT_NEAR(steps_of("--ep 2 --force-routing balanced").at(0).layers.at(0).max_over_mean, 1, 0.01);
}

TEST_F(RoutingCommand, AHashRouterGoesOnInItsCheckpoint) {
  steps_of("--ep 2 --router hash");
  std::ifstream file(path("run/checkpoint-3/config.json"));
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(config.find("\"moeloom_hash_router\": true"), std::string::npos) << config;
  const Outcome more = shell(on_ranks(2) + "train --steps 4 --resume " + path("run"));
  EXPECT_EQ(more.exit_code, 0) << more.output;
  const Outcome text = shell(on_ranks(1) + "generate --tokens 4 --model " + path("run"));
  EXPECT_EQ(text.exit_code, 0) << text.output;
}

}  // namespace
}  // namespace moeloom
