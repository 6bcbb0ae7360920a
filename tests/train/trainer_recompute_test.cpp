// Training whose backward makes activations again against training that keeps them, step by step.
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TEST(TrainerRecompute, HasTheSameBitsByEveryWay) {
  const Index world = Communicator::world().size();
  std::vector<NamedRun> runs = runs_that_may_differ();
  const auto add = [&](const char* name, auto change) {
    change(runs.emplace_back(NamedRun{name, {}}).settings);
  };
  add("exact sums", [](TrainingRunSettings& s) { s.exact = 1; });
  add("replicas", [](TrainingRunSettings& s) { s.rebalance = kFreeWeights; });
  add("replicas in the node's memory",
      [](TrainingRunSettings& s) { s.dispatcher = DispatcherKind::kShared, s.rebalance = kFreeWeights; });
  add("in chunks", [](TrainingRunSettings& s) { s.chunks = 2; });
  add("slices", [](TrainingRunSettings& s) { s.routing.row_budget = 40; });
  add("biases", [](TrainingRunSettings& s) { s.model = biased_config(), s.z_loss_coef = 0; });
  add("delta nets", [](TrainingRunSettings& s) { s.model = hybrid_config("qwen3_next"); });
  add("short convolutions", [](TrainingRunSettings& s) {
    s.model = hybrid_config("lfm2_moe"), s.z_loss_coef = 0, s.aux_loss_coef = 0;
  });
  for (auto& [name, settings] : runs) {
    settings.recompute = Recompute::kNone;
    const std::vector<double> kept = TrainingRun(shape_of(1, world), settings).losses(3);
    for (const Recompute recompute : {Recompute::kExperts, Recompute::kBlock}) {
      SCOPED_TRACE(std::string(name) + ", " + std::string(name_of(recompute)));
      settings.recompute = recompute;
      EXPECT_EQ(TrainingRun(shape_of(1, world), settings).losses(3), kept);
    }
  }
}

}  // namespace
}  // namespace moeloom
