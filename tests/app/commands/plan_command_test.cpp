// plan and calibrate as a person meets them; and the memory that plan promises against that of a real job.
#include "base/text.hpp"

#include "commands/rate_source.hpp"
#include "program/program_testing.hpp"
#include "support/sanitized.hpp"
#include <nlohmann/json.hpp>

namespace moeloom {
namespace {

using testing::alone;
using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class PlanCommand : public testing::ProgramTest {
 protected:
  static constexpr const char* kShape =
      "--layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2 "
      "--seq-len 16 ";
  nlohmann::json planned() const {
    std::ifstream file(path("plan.json"));
    return nlohmann::json::parse(file);
  }
};

TEST_F(PlanCommand, CalibrateKeepsWhatPlanThenReads) {
  const Outcome measured = shell(on_ranks(2) + "calibrate --seconds 0.1 --threads 1 " + kShape);
  ASSERT_EQ(measured.exit_code, 0) << measured.output;
  EXPECT_EQ(count_of(measured.output, "exchange in a node"), 2u) << measured.output;
  EXPECT_EQ(count_of(measured.output, "kept in " + path("cache")), 1u) << measured.output;
  const Outcome plan = shell(alone() + "plan --ranks 2 --processors 2 --threads 1 --tokens-per-rank 32 " +
                             kShape + "--data " + path("corpus.txt"));
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  EXPECT_EQ(count_of(plan.output, "note:"), 0u) << "nothing is extrapolated\n" << plan.output;
  EXPECT_NE(plan.output.find("recommended"), std::string::npos);
}

TEST_F(PlanCommand, AFullExpertCostsTimeAndMemoryWhereRanksWaitForIt) {
  const std::string line = alone() + "plan --ranks 2 --threads 1 --processors 2 --tokens-per-rank 32 " +
                           kShape + "--json " + path("plan.json");
  // Of the first row of such ep: every run reads the same rates.
  const auto of = [&](const std::string& load, Index ep, const char* key) {
    const Outcome plan = shell(line + " --expert-load " + load);
    EXPECT_EQ(plan.exit_code, 0) << plan.output;
    const nlohmann::json document = planned();
    for (const auto& point : document["points"])
      if (point["ep"] == ep && point["experts"] == "loop")
        return key == std::string("memory") ? point[key]["total"].get<double>() : point[key].get<double>();
    ADD_FAILURE() << "no loop at ep = " << ep;
    return 0.0;
  };
  for (const char* key : {"step_seconds", "memory"}) {
    EXPECT_EQ(of("1.5", 1, key), of("1", 1, key)) << key << ": ep = 1 holds every expert";
    EXPECT_GT(of("1.5", 2, key), of("1", 2, key)) << key;
  }
  const Outcome more = shell(line + " --expert-load 1000");
  EXPECT_EQ(more.exit_code, 1);
  EXPECT_NE(more.output.find("is more than experts / top-k"), std::string::npos) << more.output;
}

TEST_F(PlanCommand, TheRecommendedLineTrains) {
  const Outcome plan = shell(alone() + "plan --ranks 2 --threads 1 --tokens-per-rank 32 " + kShape +
                             "--data " + path("corpus.txt") + " --json " + path("plan.json"));
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  std::string line = planned()["recommended"];
  EXPECT_NE(plan.output.find(line), std::string::npos);
  line.replace(line.find("moeloom train"), std::string("moeloom").size(), testing::kProgram);
  const Outcome run =
      shell(testing::within_time() + line + " --steps 1 --sample-chars 0 --run " + path("run"));
  EXPECT_EQ(run.exit_code, 0) << line << "\n" << run.output;
  EXPECT_EQ(losses("run").size(), 1u);
}

TEST_F(PlanCommand, AnAdapterAndFewerBytesArePlannedAndInTheRecommendedLine) {
  const std::string line = alone() + "plan --ranks 2 --threads 1 --tokens-per-rank 256 " +
                           std::string(kShape) + "--rows 1 --data " + path("corpus.txt") + " --json " +
                           path("plan.json");
  const auto memory = [&](const std::string& flags) {
    const Outcome plan = shell(line + flags);
    EXPECT_EQ(plan.exit_code, 0) << plan.output;
    EXPECT_NE(planned()["recommended"].get<std::string>().find(flags), std::string::npos) << plan.output;
    return planned()["points"][0]["memory"];
  };
  const nlohmann::json whole = memory("");
  const nlohmann::json smaller = memory(" --moments bf16 --recompute block");
  EXPECT_DOUBLE_EQ(smaller["moments"].get<double>() * 2, whole["moments"].get<double>());
  EXPECT_LT(smaller["activations"].get<double>(), 0.5 * whole["activations"].get<double>());
  const nlohmann::json halves = memory(" --masters bf16");
  EXPECT_LT(halves["expert_weights"].get<double>(), 0.51 * whole["expert_weights"].get<double>());
  EXPECT_EQ(halves["expert_gradients"], whole["expert_gradients"]);
  const nlohmann::json adapter = memory(" --lora r=2,alpha=2,targets=experts");
  EXPECT_LT(adapter["moments"].get<double>(), 0.2 * whole["moments"].get<double>());
}

TEST_F(PlanCommand, SeveralNodesNeedANetwork) {
  const std::string line =
      alone() + "plan --ranks 8 --ranks-per-node 2 --processors 2 --threads 1 --tokens-per-rank 32 " + kShape;
  const Outcome unknown = shell(line);
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_EQ(count_of(unknown.output, "give --net 200Gbit,2us"), 1u) << unknown.output;
  EXPECT_EQ(count_of(unknown.output, "mpirun -n 4 --map-by ppr:2:node moeloom calibrate --experts 4"), 1u)
      << unknown.output;
  const Outcome given = shell(line + "--net 10Gbit,20us");
  EXPECT_EQ(given.exit_code, 0) << given.output;
  EXPECT_EQ(count_of(given.output, "8 ranks are extrapolated from 1"), 1u) << given.output;
  EXPECT_EQ(count_of(given.output, "--map-by ppr:2:node"), 1u) << given.output;
}

TEST_F(PlanCommand, WhatDoesNotFitIsSaidAndNotRecommended) {
  const Outcome plan =
      shell(alone() + "plan --ranks 2 --memory 64KiB --tokens-per-rank 32 " + std::string(kShape));
  EXPECT_EQ(plan.exit_code, 0) << plan.output;
  EXPECT_EQ(count_of(plan.output, "nothing fits"), 1u) << plan.output;
  EXPECT_EQ(count_of(plan.output, "recommended"), 0u) << plan.output;
  const Outcome less_than_a_byte = shell(alone() + "plan --ranks 4 --memory 3 --net 10Gbit,20us " + kShape);
  EXPECT_EQ(less_than_a_byte.exit_code, 0) << less_than_a_byte.output;
  EXPECT_EQ(count_of(less_than_a_byte.output, "nothing fits"), 1u) << less_than_a_byte.output;
  EXPECT_EQ(count_of(less_than_a_byte.output, "in slices"), 0u) << less_than_a_byte.output;
}

TEST_F(PlanCommand, TheSmallestNeedIsNamedAndTheChangeThatIsSaidToFitFits) {
  const std::string line = alone() + "plan --ranks 2 --processors 2 --threads 1 --tokens-per-rank 1024 " +
                           kShape + "--rows 1 --json " + path("plan.json") + " --memory ";
  EXPECT_EQ(shell(line + "64GiB").exit_code, 0);
  const nlohmann::json plenty = planned();
  double smallest = 1e18;
  for (const auto& point : plenty["points"])
    smallest = std::min(smallest, point["memory"]["total"].get<double>());
  const auto within = [&](double rank_bytes) {
    return line + std::to_string(static_cast<Index>(2 * (rank_bytes + kProgramBytes)));
  };
  const Outcome beside = shell(within(smallest - 0.5 * kProgramBytes));
  EXPECT_EQ(count_of(beside.output, "nothing fits"), 1u) << "the program and MPI are counted\n"
                                                         << beside.output;
  EXPECT_EQ(count_of(shell(within(1.01 * smallest)).output, "recommended"), 1u);
  const std::string tight = within(0.8 * smallest);
  const Outcome none = shell(tight);
  EXPECT_EQ(none.exit_code, 0) << none.output;
  EXPECT_EQ(count_of(none.output, "the smallest need is " + bytes_text(smallest) + " a rank"), 1u)
      << "of all rows, not only those shown\n"
      << none.output;
  EXPECT_EQ(planned()["recommended"], "");
  const std::string change = planned()["fits_with"];
  EXPECT_EQ(count_of(none.output, "with the same tokens a step: " + change + "\n"), 1u) << none.output;
  EXPECT_EQ(change.find("--accumulate "), 0u) << change;
  const Outcome fits = shell(tight + " " + change);
  EXPECT_EQ(count_of(fits.output, "recommended"), 1u) << fits.output;
}

TEST_F(PlanCommand, MemoryOfANodeIsTheCeilingOfItsRanks) {
  const std::string line = alone() + "plan --ranks 2 --processors 2 --threads 1 --tokens-per-rank 2048 " +
                           "--layers 2 --hidden 64 --inter 512 --experts 8 --top-k 4 --seq-len 64 " +
                           "--rows 1 --json " + path("plan.json") + " --memory ";
  const auto within = [&](double rank_bytes) {
    return shell(line + std::to_string(static_cast<Index>(2 * rank_bytes)));
  };
  const Outcome plenty = shell(line + "8GiB");
  EXPECT_EQ(count_of(plenty.output, "  rows        --memory 4 GiB: even the "), 1u) << plenty.output;
  EXPECT_EQ(count_of(plenty.output, " --memory 4GiB --data"), 1u) << plenty.output;
  const nlohmann::json roomy = planned();
  EXPECT_EQ(roomy["decision"]["row_budget"], 0);
  const double even = roomy["decision"]["memory"];
  double smallest = even;
  for (const auto& point : roomy["points"])
    smallest = std::min(smallest, point["memory"]["total"].get<double>());
  const Outcome sliced = within(1.3 * even);
  // The fastest mesh is a matter of this machine's rates of the moment; at ep = 1 no rank's rows can be more.
  const auto spreads = [](const nlohmann::json& plan) {
    return plan["recommended"].get<std::string>().find("--ep 2") != std::string::npos;
  };
  if (spreads(roomy) && spreads(planned())) {
    EXPECT_EQ(count_of(sliced.output, "times the balanced 8192"), 1u) << sliced.output;
    EXPECT_GT(planned()["decision"]["row_budget"], 8192);
  } else {
    EXPECT_EQ(count_of(sliced.output, "recommended"), 1u) << sliced.output;
  }
  const Outcome none = within(0.95 * smallest);
  EXPECT_EQ(count_of(none.output, "nothing fits"), 1u) << none.output;
  EXPECT_EQ(count_of(none.output, "or as it is, in slices, slower: --memory "), 1u) << none.output;
}

/// The largest memory of a rank of a job without evaluation, and without a calibration to take memory.
double peak_of(const std::string& run) {
  return static_cast<double>(read_metrics(std::filesystem::path(run) / "metrics.jsonl").back().rss_bytes);
}

/// Predicted for the one point of this mesh and dispatcher whose experts run grouped, on the masters.
std::vector<double> grouped_memory(const nlohmann::json& plan, Index ep, const std::string& dispatcher) {
  std::vector<double> bytes;
  for (const auto& point : plan["points"]) {
    const std::string experts = point["experts"];
    if (point["ep"] == ep && point["dispatcher"] == dispatcher && experts.starts_with("gmm"))
      bytes.push_back(point["memory"]["total"].get<double>() - point["memory"]["packed"].get<double>());
  }
  return bytes;
}

TEST_F(PlanCommand, MemoryIsWithinTenPercentOfWhatARealJobTakes) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's memory is counted too";
  const std::string force = "MOELOOM_GMM_PATCH=force ";  // which packs nothing
  const std::string rest =
      " --eval-every 0 --steps 2 --save-every 0 --sample-chars 0 --threads 1 --seq-len 128 ";
  // Every token to every expert: an untrained router's choices are not even, and the plan's rows are.
  const std::string shape =
      "--layers 4 --hidden 256 --inter 384 --experts 4 --heads 8 --kv-heads 4 --head-dim 32 --top-k 4 ";
  const Outcome plan = shell(alone() + "plan --ranks 2 --threads 1 --seq-len 128 --tokens-per-rank 1024 " +
                             shape + "--json " + path("plan.json"));
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  for (const auto& [ep, dispatcher] :
       {std::pair<Index, std::string>(1, "alltoall"), {2, "alltoall"}, {2, "shared"}}) {
    const std::string mesh = " --ep " + std::to_string(ep) + " --dispatcher " + dispatcher + rest;
    // The program, MPI and what every run needs, as a job of next to nothing has them.
    const Outcome small = shell(force + train(2, mesh + "--global-batch 2 --run " + path("small")));
    ASSERT_EQ(small.exit_code, 0) << small.output;
    const Outcome big = shell(force + train(2, mesh + shape + "--global-batch 16 --run " + path("big")));
    ASSERT_EQ(big.exit_code, 0) << big.output;
    const std::vector<double> predicted = grouped_memory(planned(), ep, dispatcher);
    ASSERT_EQ(predicted.size(), 1u) << "ep = " << ep << ", " << dispatcher;
    const double measured = peak_of(path("big")) - peak_of(path("small"));
    EXPECT_NEAR(predicted.front(), measured, 0.1 * measured) << "ep = " << ep << ", " << dispatcher;
    for (const char* run : {"small", "big"}) std::filesystem::remove_all(path(run));
  }
}

}  // namespace
}  // namespace moeloom
