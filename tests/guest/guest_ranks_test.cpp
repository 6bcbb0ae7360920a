// The library on ranks of somebody's program: what is wrong on one of them is told on all, so that no rank
// waits for another that has gone, and afterwards all go on.
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/run/asking.hpp"
#include "moeloom/run/model.hpp"
#include "moeloom/run/training.hpp"
#include "run/small_run.hpp"

#include <cmath>
#include <fstream>
#include <functional>

#include "summary/run_report.hpp"
#include "support/expect_error.hpp"
#include "support/shared_folder.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using testing::small_model;

class RanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (rank_ == 0) {
      std::ofstream text(folder_ / "corpus.txt");
      for (int i = 0; i < 500; ++i) text << "And the weaver drew thread " << i * i % 89 << ".\n";
    }
    world_.barrier();
  }

  Mesh mesh() const { return Mesh(Communicator::world(), {1, world_.size()}); }
  bool is_last() const { return rank_ == world_.size() - 1; }
  TrainOptions options(const std::string& run) const {
    TrainOptions options;
    options.model.shape = small_model();
    options.data.sources = {{folder_ / "corpus.txt"}};
    options.mesh.ep = world_.size();
    options.batch = {.sequences = 4, .length = 16};
    options.run.folder = folder_ / run;
    options.run.steps = 2;
    options.run.sample_chars = 0;
    return options;
  }

  const Communicator world_ = Communicator::world();
  const int rank_ = world_.rank();
  const testing::SharedFolder shared_{world_};
  const fs::path folder_ = shared_.path();
};

using ModelOnRanks = RanksTest;
using RunOnRanks = RanksTest;

Batch batch_of(Index sequences, std::int32_t first) {
  Batch batch{.sequences = sequences, .sequence_length = 8};
  for (Index t = 0; t < batch.tokens(); ++t) {
    batch.input_ids.push_back(static_cast<std::int32_t>((first + 7 * t) % 256));
    batch.targets.push_back(static_cast<std::int32_t>((first + 7 * t + 7) % 256));
  }
  return batch;
}

TEST_F(ModelOnRanks, ABatchThatOneRankGotWrongIsRefusedByAllAndTheNextRuns) {
  Model model(mesh(), small_model(), {.batch = {.sequences = 4 * world_.size(), .length = 8}, .seed = 3});
  const Batch good = batch_of(4, rank_);
  Batch bad = good;
  if (is_last()) bad.targets[5] = 999;
  EXPECT_THROW(model.step({bad}), AgreedError);
  EXPECT_THROW(model.evaluate({bad}), AgreedError);
  EXPECT_THROW(model.logits(bad), AgreedError);
  const StepLosses losses = model.step({good});
  EXPECT_EQ(world_.all_max(losses.lm_loss), losses.lm_loss) << "the same on every rank";
  EXPECT_EQ(losses.tokens, 32 * world_.size());
  if (world_.size() > 1) {
    EXPECT_THROW(model.evaluate(std::vector<Batch>(is_last() ? 2 : 1, good)), AgreedError);
  }
  EXPECT_TRUE(std::isnan(model.evaluate({}))) << "nothing has no mean";
  EXPECT_EQ(model.steps(), 1);
}

TEST_F(ModelOnRanks, EachSettingThatDiffersIsRefusedByAll) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const ModelSettings same{.batch = {.sequences = 8 * world_.size(), .length = 8}};
  const std::vector<std::pair<const char*, std::function<void(ModelSettings&)>>> changes = {
      {"sequences", [](auto& s) { s.batch.sequences *= 2; }},
      {"length", [](auto& s) { s.batch.length = 4; }},
      {"micro_batches", [](auto& s) { s.batch.micro_batches = 2; }},
      {"exact", [](auto& s) { s.batch.exact = 1; }},
      {"optimizer", [](auto& s) { s.keeping.optimizer = OptimizerKind::kMuon; }},
      {"moments", [](auto& s) { s.keeping.moments = MomentFormat::kBf16; }},
      {"masters", [](auto& s) { s.keeping.masters = Storage::kBf16; }},
      {"gradients", [](auto& s) { s.keeping.gradients = Storage::kBf16; }},
      {"recompute", [](auto& s) { s.keeping.recompute = Recompute::kBlock; }},
      {"shard_dense", [](auto& s) { s.keeping.shard_dense = true; }},
      {"offload", [](auto& s) { s.keeping.offload = "/disk"; }},
      {"dispatcher", [](auto& s) { s.exchange.dispatcher = DispatcherKind::kAlltoall; }},
      {"combine", [](auto& s) { s.exchange.combine = CombineMode::kFast; }},
      {"wire", [](auto& s) { s.exchange.wire = WireDType::kBf16; }},
      {"chunks", [](auto& s) { s.exchange.chunks = 0; }},
      {"overlap_reduce", [](auto& s) { s.exchange.overlap_reduce = false; }},
      {"overlap_gather", [](auto& s) { s.exchange.overlap_gather = false; }},
      {"rebalance", [](auto& s) { s.exchange.rebalance = true; }},
      {"kernels", [](auto& s) { s.kernels = "none"; }},
      {"gmm", [](auto& s) { s.gmm = GmmRequest::kForce; }},
      {"dtype", [](auto& s) { s.dtype = DType::kBF16; }},
      {"beta1", [](auto& s) { s.optimizer.adamw.beta1 = 0.5; }},
      {"beta2", [](auto& s) { s.optimizer.adamw.beta2 = 0.5; }},
      {"epsilon", [](auto& s) { s.optimizer.adamw.epsilon *= 1 + 1e-15; }},
      {"weight_decay", [](auto& s) { s.optimizer.adamw.weight_decay = 0; }},
      {"max_grad_norm", [](auto& s) { s.optimizer.max_grad_norm = 0; }},
      {"decay_all", [](auto& s) { s.optimizer.decay_all = true; }},
      {"starved", [](auto& s) { s.optimizer.starved = StarvedExperts::kSkip; }},
      {"peak", [](auto& s) { s.schedule.peak = 1; }},
      {"warmup_steps", [](auto& s) { s.schedule.warmup_steps = 1; }},
      {"total_steps", [](auto& s) { s.schedule.total_steps = 2; }},
      {"final_fraction", [](auto& s) { s.schedule.final_fraction = 0; }},
      {"expert_choice", [](auto& s) { s.routing.training.expert_choice = true; }},
      {"capacity_factor", [](auto& s) { s.routing.training.capacity_factor = 2; }},
      {"router dtype", [](auto& s) { s.routing.dtype = RouterDType::kFp64; }},
      {"pooled", [](auto& s) { s.routing.balance.pooled = false; }},
      {"over", [](auto& s) { s.routing.balance.over = BalanceOver::kSequence; }},
      {"row_budget", [](auto& s) { s.routing.row_budget = 1000; }},
      {"aux_loss_coef", [](auto& s) { s.aux_loss_coef = 1; }},
      {"z_loss_coef", [](auto& s) { s.z_loss_coef = 1; }},
      {"router_bias_rate", [](auto& s) { s.router_bias_rate = 1; }},
      {"on_nan", [](auto& s) { s.on_nan = OnNan::kSkip; }},
      {"seed", [](auto& s) { s.seed = 1; }}};
  for (const auto& [name, change] : changes) {
    ModelSettings mine = same;
    if (is_last()) change(mine);
    const std::string why = testing::message_of<AgreedError>([&] { Model(mesh(), small_model(), mine); });
    EXPECT_NE(why.find("options or environment differ"), why.npos) << name << ": " << why;
  }
  EXPECT_EQ(Model(mesh(), small_model(), same).steps(), 0);
}

TEST_F(ModelOnRanks, SettingsThatDifferAreRefusedByAll) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  ModelSettings settings{.batch = {.sequences = 4 * world_.size(), .length = 8}};
  settings.seed = is_last() ? 2 : 1;
  EXPECT_THROW(Model(mesh(), small_model(), settings), AgreedError);
  ModelConfig few = small_model();
  few.num_experts = world_.size() - 1;
  few.num_experts_per_tok = 1;
  settings.seed = 1;
  EXPECT_THROW(Model(mesh(), few, settings), AgreedError) << "a rank without an expert";
}

TEST_F(RunOnRanks, WhatAHostThrowsOnOneRankEndsTheRunOnAll) {
  RunHost host;
  host.begin = [&] {
    if (is_last()) throw std::runtime_error("the host is not ready");
  };
  EXPECT_THROW(Training(Communicator::world(), options("begin"), host), AgreedError);
  RunHost other;
  other.opened = [&](const TrainOptions&, const Mesh&, RunHost&) {
    if (is_last()) throw std::runtime_error("the host is not ready");
  };
  EXPECT_THROW(Training(Communicator::world(), options("opened"), other), AgreedError);
  TrainOptions differ = options("differ");
  if (is_last()) differ.run.seed = 9;
  if (world_.size() > 1) {
    EXPECT_THROW(Training(Communicator::world(), differ), AgreedError);
  }
}

TEST_F(RunOnRanks, IsFinishedOnceAndAnswersOnRankZero) {
  {
    Training training(Communicator::world(), options("run"));
    while (training.step()) continue;
    EXPECT_EQ(training.finish(), RunEnd::kDone);
    EXPECT_EQ(training.finish(), RunEnd::kDone) << "the same answer again";
  }
  AskOptions asked;
  asked.model = folder_ / "run";
  asked.ep = world_.size();
  Asking model(Communicator::world(), asked);
  EXPECT_THROW(model.generate("", {.tokens = 3}), AgreedError) << "rank 0's prompt is all ranks' error";
  const AnswerSettings likeliest{.tokens = 5, .sampling = {.temperature = 0}};
  EXPECT_EQ(model.generate("And ", likeliest).empty(), rank_ != 0);
  const Score score = model.score("And the weaver drew thread 4.\n");
  EXPECT_TRUE(rank_ != 0 || score.nats > 0);
}

std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:") != line.npos) ++found;
  return found;
}
std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST_F(RunOnRanks, LeavesNoMemoryOfTheNodeBehindNorOneThatIsGivenUp) {
  const auto round = [&](int time) {
    Training whole(Communicator::world(), options("whole" + std::to_string(time)));
    while (whole.step()) continue;
    whole.finish();
    Training given_up(Communicator::world(), options("half" + std::to_string(time)));
    given_up.step();
    Model model(mesh(), small_model(), {.batch = {.sequences = 4 * world_.size(), .length = 8}});
    model.step({batch_of(4, rank_)});
  };
  round(0);
  const std::size_t mappings = shared_mappings(), files = open_files();
  for (int time = 1; time < 4; ++time) round(time);
  EXPECT_EQ(shared_mappings(), mappings);
  EXPECT_EQ(open_files(), files);
}

/// Each row of ep has a number of its own.
TEST_F(RunOnRanks, TheMostSlicesOfARankAreTold) {
  StepReport report;
  report.row_slices = is_last() ? 3 : 2;
  EXPECT_EQ(measure_step(report, 0, {}, world_).row_slices, 3);
}

}  // namespace
}  // namespace moeloom
