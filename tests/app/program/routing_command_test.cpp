// What routers chose, recorded by one command and taken by the others.
#include "moeloom/io/routing_file.hpp"
#include "moeloom/measure/sweep/file.hpp"

#include "program/program_testing.hpp"
#include "support/files.hpp"
#include <nlohmann/json.hpp>

namespace moeloom {
namespace {

using namespace testing;

class RoutingCommand : public testing::ProgramTest {
 protected:
  std::string bytes(const std::string& name) const { return read_bytes(path(name)); }
  std::string record(const std::string& name, const std::string& steps) const {
    return " --record-routing " + path(name) + " --record-steps " + steps + " ";
  }
  /// On one rank, of the tiny model's shape.
  std::string plan(const std::string& flags) const {
    return alone() +
           "plan --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
           " --seq-len 16 --ranks 2 --processors 2 --threads 1 --tokens-per-rank 32 --json " +
           path("plan.json") + " " + flags;
  }
  /// Of the first way at ep = 2, which is the fastest.
  double planned_seconds() const {
    std::ifstream file(path("plan.json"));
    const nlohmann::json plan = nlohmann::json::parse(file);
    for (const auto& point : plan["points"])
      if (point["ep"] == 2) return point["step_seconds"];
    return 0;
  }
};

TEST_F(RoutingCommand, ARunThatStopsAndGoesOnRecordsAsOneThatDoesNot) {
  const std::string whole_run =
      train(2, "--ep 2 --steps 8 --schedule-steps 8 --run " + path("whole") + record("whole.r", "2:7"));
  const Outcome whole = shell(whole_run);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_EQ(count_of(whole.output, "recorded=" + path("whole.r") + " steps=\"2 to 6\""), 1u) << whole.output;
  EXPECT_EQ(RoutingFile(path("whole.r")).steps().size(), 5u);
  ASSERT_EQ(
      shell(train(2, "--ep 2 --steps 5 --save-every 4 --keep 0 --schedule-steps 8" + record("part.r", "2:7")))
          .exit_code,
      0);
  EXPECT_EQ(RoutingFile(path("part.r")).steps().size(), 3u) << "steps 2, 3, 4";
  const Outcome again = shell(on_ranks(2) + "train --steps 8 --ep 1 --resume " + path("run/checkpoint-4"));
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(bytes("part.r"), bytes("whole.r")) << "from step 4 on, at another ep";
  const Outcome later = shell(on_ranks(2) + "train --steps 9 --resume " + path("run"));
  ASSERT_EQ(later.exit_code, 0) << later.output;
  EXPECT_EQ(count_of(later.output, "record=no reason=\"steps 2:7 came before"), 1u) << later.output;
  EXPECT_EQ(bytes("part.r"), bytes("whole.r"));
}

TEST_F(RoutingCommand, WhatCannotBeRecordedIsSaidBeforeAnythingRuns) {
  const auto refusal = [&](const std::string& flags) { return shell(train(2, flags)).output; };
  EXPECT_EQ(count_of(refusal("--experts 0 --record-routing " + path("r")), "needs experts, and no layer"),
            1u);
  EXPECT_EQ(count_of(refusal("--steps 3 --overwrite true" + record("r", "5:9")),
                     "--record-steps 5:9 holds none of the steps 0 to 2"),
            1u);
  const std::string nowhere = refusal("--steps 3 --record-routing " + path("no/r"));
  EXPECT_EQ(count_of(nowhere, "cannot create " + path("no/r.partial")), 1u) << nowhere;
  EXPECT_EQ(count_of(nowhere, "step=0"), 0u) << nowhere;
  write_bytes(path("bad"), "this is a text");
  EXPECT_EQ(count_of(refusal("--replay-routing " + path("bad")), "bad: this is no routing file of moeloom"),
            1u);
}

TEST_F(RoutingCommand, AReplayIsTheRunThatItWasRecordedFrom) {
  for (const char* how : {"--ep 1 --seed 3", "--ep 2", "--ep 2 --accumulate 2"}) {
    const std::string run = std::string("--steps 5 --overwrite true ") + how + " ";
    ASSERT_EQ(shell(train(2, run + record("r", "0:5"))).exit_code, 0);
    const Outcome again = shell(train(2, run + "--run " + path("again") + " --replay-routing " + path("r")));
    ASSERT_EQ(again.exit_code, 0) << again.output;
    EXPECT_EQ(count_of(again.output, "forced=\"5 of 5 steps\" by=\"step number\""), 1u) << again.output;
    EXPECT_EQ(losses("again"), losses("run")) << how;
    EXPECT_EQ(bytes("again/checkpoint-5/model.safetensors"), bytes("run/checkpoint-5/model.safetensors"))
        << how;
    const Outcome other =
        shell(train(2, run + "--seed 7 --run " + path("other") + " --replay-routing " + path("r")));
    ASSERT_EQ(other.exit_code, 0) << other.output;
    EXPECT_EQ(count_of(other.output, "by=turn reason=\"its texts are others\""), 1u) << other.output;
  }
  const Outcome refused =
      shell(train(2, "--experts 8 --global-batch 8 --overwrite true --replay-routing " + path("r")));
  EXPECT_EQ(count_of(refused.output, "num_experts = 4, and this run has 8"), 1u) << refused.output;
  EXPECT_EQ(count_of(refused.output, "tokens a step = 64, and this run has 128"), 1u) << refused.output;
}

TEST_F(RoutingCommand, GeneratedTextIsRecordedTokenForToken) {
  ASSERT_EQ(shell(train(2, "--steps 2")).exit_code, 0);
  for (const char* ep : {"1", "2"}) {
    const Outcome run = shell(on_ranks(2) + "generate --model " + path("run") + " --ep " + ep +
                              " --prompt weaver --tokens 20 --record-routing " + path("text.") + ep);
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }
  const RoutingFile file(path("text.1"));
  EXPECT_EQ(file.heading().tokens, 6 + 20 - 1) << "the last one is not routed";
  EXPECT_EQ(file.heading().sequence_length, 25);
  EXPECT_EQ(file.steps().size(), 1u);
  EXPECT_EQ(file.read(0, 1).topk_idx.size(), 50u);
  EXPECT_EQ(bytes("text.1"), bytes("text.2"));
  // The prompt's choices are those of a text that begins so.
  ASSERT_EQ(shell(alone() + "generate --model " + path("run") +
                  " --prompt weaverly --tokens 1 --record-routing " + path("text.3"))
                .exit_code,
            0);
  const std::vector<std::int32_t> mine = file.read(0, 0).topk_idx,
                                  other = RoutingFile(path("text.3")).read(0, 0).topk_idx;
  EXPECT_EQ(std::vector(mine.begin(), mine.begin() + 12), std::vector(other.begin(), other.begin() + 12));
}

TEST_F(RoutingCommand, BenchAndPlanTakeItAsTheirRouting) {
  ASSERT_EQ(shell(train(2, "--steps 4" + record("a.r", "1:4"))).exit_code, 0);
  const std::string bench =
      "bench ep --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
      " --tokens 64 --threads 1 --samples 2 --warmup 1 --mode layer --scaling strong --gmm force --out " +
      path("out");
  const Outcome run = shell(on_ranks(2) + bench + " --workloads balanced,trace:" + path("a.r") + "@1");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<EpRow> rows = read_points(std::filesystem::path(path("out")) / "points.jsonl");
  ASSERT_EQ(rows.size(), 4u) << "two routings at ep = 1 and 2";
  EXPECT_EQ(rows.back().workload, "trace:" + path("a.r") + "@1");
  EXPECT_EQ(rows.front().expert_gini, 0) << "balanced";
  EXPECT_GT(rows.back().expert_gini, 0);
  EXPECT_GT(rows.back().expert_load, 1);
  const Outcome other = shell(on_ranks(2) + bench + " --experts 8 --workloads trace:" + path("a.r"));
  EXPECT_EQ(count_of(other.output, "was recorded with top-k = 2 of 4 experts"), 1u) << other.output;
  ASSERT_EQ(shell(plan("--calibrate")).exit_code, 0);
  const double even = planned_seconds();
  const Outcome planned = shell(plan("--routing trace:" + path("a.r")));
  ASSERT_EQ(planned.exit_code, 0) << planned.output;
  EXPECT_GT(planned_seconds(), even) << "a fuller rank is waited for";
  const Outcome refused = shell(plan("--top-k 1 --routing trace:" + path("a.r")));
  EXPECT_EQ(count_of(refused.output, "was recorded with top-k = 2 of 4 experts"), 1u) << refused.output;
}

}  // namespace
}  // namespace moeloom
