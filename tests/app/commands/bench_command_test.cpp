// `moeloom bench ep` as a person runs it: measured, checked, stopped in the middle, gone on with.
#include "measure/sweep/file.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <csignal>
#include <fstream>
#include <future>
#include <map>
#include <set>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

class Bench : public testing::ProgramTest {
 protected:
  static std::string tiny_model() {
    return " --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 --experts 4 --top-k 2"
           " --seq-len 8 --tokens 64 --tokens-per-rank 16 --threads 1";
  }
  std::string bench(int ranks, const std::string& flags) const {
    return on_ranks(ranks) + "bench ep" + tiny_model() + " --samples 2 --warmup 1 --out " + path("out") +
           " " + flags;
  }
  std::vector<EpRow> rows() const { return read_points(fs::path(path("out")) / "points.jsonl"); }
  std::string text_of_file(const std::string& name) const {
    std::ifstream file(fs::path(path("out")) / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

std::set<std::string> keys_of(const std::vector<EpRow>& rows) {
  std::set<std::string> keys;
  for (const EpRow& row : rows) keys.insert(key_of(row));
  return keys;
}

TEST_F(Bench, MeasuresEveryRoutingAtEveryEpAndChecksEachAgainstEpOne) {
  const Outcome run = shell(
      bench(4, "--mode layer --workloads all --dispatcher alltoall,shared --gmm 0,force --scaling strong"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<EpRow> all = rows();
  ASSERT_EQ(all.size(), kWorkloads.size() * 3 * 2 * 2);
  for (const EpRow& row : all) {
    EXPECT_LE(row.error, row.tolerance) << row.point;
    EXPECT_GT(row.step_ms.median, 0) << row.point;
    EXPECT_LE(row.step_ms.p10, row.step_ms.p90) << row.point;
    EXPECT_EQ(row.dispatcher_used, row.dispatcher) << row.point;
    EXPECT_EQ(row.gmm_applied, row.gmm == "force") << row.point;
    EXPECT_EQ(row.row_bytes == 0, row.ep == 1) << row.point;
    // Rows and one number a row each way; `shared` moves them through memory.
    const bool by_mpi = row.ep == 4 && row.dispatcher == "alltoall";
    EXPECT_TRUE(!by_mpi || row.message_bytes > row.row_bytes) << row.point;
    EXPECT_TRUE(row.ep == 1 || row.dispatcher != "shared" || row.message_bytes < row.row_bytes) << row.point;
    EXPECT_TRUE(row.workload != "balanced" || row.rank_load == 1) << row.point;
    EXPECT_TRUE(row.workload != "zero-load" || row.ep < 4 || row.rank_load == 2) << row.point;
  }
  // The same global routing at every ep: the load of experts is a property of it.
  std::map<std::string, std::set<double>> expert_loads;
  for (const EpRow& row : all) expert_loads[row.workload].insert(row.expert_load);
  for (const auto& [workload, loads] : expert_loads) EXPECT_EQ(loads.size(), 1u) << workload;
}

TEST_F(Bench, MeasuresTrainingStepsOfEveryEpStrongAndWeak) {
  const Outcome run = shell(bench(2, "--mode step --gmm 0,auto,force"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  ASSERT_EQ(rows().size(), 2u * 2 * 3);
  for (const EpRow& row : rows()) {
    EXPECT_LE(row.error, row.tolerance) << row.point;
    EXPECT_EQ(row.workload, "natural");
    EXPECT_EQ(row.tokens, row.scaling == "strong" ? 64 : 32);
    EXPECT_GT(row.phase_ms[static_cast<std::size_t>(Phase::kOptimizer)], 0) << row.point;
    EXPECT_GE(row.expert_load, 1) << row.point;
  }
  EXPECT_EQ(count_of(text_of_file("points.csv"), "\n"), 1 + rows().size());
  EXPECT_EQ(count_of(text_of_file("report.html"), "<td>natural</td>"), rows().size());
}

TEST_F(Bench, GoesOnWhereItWasKilledWithoutRepeatingAPoint) {
  const std::string sweep = bench(2, "--workloads all --gmm 0,force");
  const fs::path points = fs::path(path("out")) / "points.jsonl";
  auto killed = std::async(std::launch::async, [&] { return shell(sweep + " --samples 40"); });
  ASSERT_TRUE(soon([&] {
    std::error_code none;
    return fs::exists(points, none) && fs::file_size(points, none) > 0;
  }));
  const std::vector<pid_t> ranks = ranks_with(path("out"));
  ASSERT_FALSE(ranks.empty());
  ::kill(ranks.front(), SIGKILL);
  EXPECT_NE(killed.get().exit_code, 0);
  const std::vector<EpRow> before = rows();
  ASSERT_FALSE(before.empty());
  const std::size_t whole = 2 * kWorkloads.size() * 4 + 2 * 4;
  ASSERT_LT(before.size(), whole) << "it was not stopped in the middle";
  const Outcome resumed = shell(sweep + " --samples 40");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  const std::vector<EpRow> after = rows();
  EXPECT_EQ(after.size(), whole);
  EXPECT_EQ(keys_of(after).size(), whole) << "a point was measured twice";
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(document_of(after[i]).dump(-1), document_of(before[i]).dump(-1)) << "measured again";
  const std::string settled = text_of_file("points.jsonl");
  ASSERT_EQ(shell(sweep + " --samples 40").exit_code, 0);
  EXPECT_EQ(text_of_file("points.jsonl"), settled) << "nothing was missing";
}

TEST_F(Bench, OtherWorldsAndBuildsStandBeside) {
  const std::string small = "--mode layer --scaling weak --ep 1 --gmm 0";
  ASSERT_EQ(shell(bench(1, small)).exit_code, 0);
  ASSERT_EQ(shell(bench(2, small)).exit_code, 0);
  EXPECT_EQ(rows().size(), 2u);
  ASSERT_EQ(shell(bench(2, small + " --commit other")).exit_code, 0);
  EXPECT_EQ(rows().size(), 3u);
}

TEST_F(Bench, RefusesWhatCannotBeMeasuredOnceAndBeforeMeasuring) {
  const Outcome refused = shell(bench(2, "--ep 3 --samples 0"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(count_of(refused.output, "ep = 3 does not divide the 2 ranks"), 1u) << refused.output;
  EXPECT_EQ(count_of(refused.output, "samples = 0 must be at least 1"), 1u) << refused.output;
  EXPECT_FALSE(fs::exists(path("out")));
  const Outcome what = shell(on_ranks(1) + "bench");
  EXPECT_EQ(count_of(what.output, "known: ep"), 1u) << what.output;
}

TEST_F(Bench, Bf16IsCheckedWithItsOwnToleranceAndRefusedWhereItCannotRun) {
  const std::string bf16 = bench(2, "--scaling strong --gmm force --dtype fp32,bf16");
  const Outcome run = shell("export MOELOOM_BF16=emulate; " + bf16);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  ASSERT_EQ(rows().size(), 2u * 2 * 2);
  for (const EpRow& row : rows()) {
    EXPECT_EQ(row.dtype_used, row.dtype) << row.point;
    EXPECT_EQ(row.tolerance > 1e-4, row.dtype == "bf16") << row.point;
    EXPECT_LE(row.error, row.tolerance) << row.point;
  }
  if (cpu_has_bf16()) return;
  const Outcome refused = shell(bf16);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(count_of(refused.output, "leave bf16 out, or set MOELOOM_BF16=emulate"), 1u) << refused.output;
}

TEST_F(Bench, APointThatCannotRunIsSkippedWithItsReasonAndTheSweepGoesOn) {
  const std::string sweep = "export MOELOOM_PRETEND_NODES=2; " +
                            bench(2, "--mode layer --scaling strong --gmm 0 --dispatcher shared,alltoall");
  const Outcome run = shell(sweep);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<EpRow> all = rows();
  ASSERT_EQ(all.size(), 4u);
  std::string reason;
  for (const EpRow& row : all) {
    const bool across_nodes = row.ep == 2 && row.dispatcher == "shared";
    EXPECT_EQ(!row.skipped.empty(), across_nodes) << row.point << ": " << row.skipped;
    EXPECT_EQ(row.samples, across_nodes ? 0 : 2) << row.point;
    EXPECT_EQ(row.step_ms.median > 0, !across_nodes) << row.point;
    if (across_nodes) reason = row.skipped;
  }
  EXPECT_NE(reason.find("nodes"), std::string::npos) << reason;
  EXPECT_EQ(count_of(run.output, "skipped="), 1u) << run.output;
  EXPECT_EQ(count_of(text_of_file("report.html"), "<h2>Skipped</h2>"), 1u);
  EXPECT_NE(text_of_file("points.csv").find(reason.substr(0, reason.find('"'))), std::string::npos);
  EXPECT_EQ(count_of(shell(sweep).output, "point="), 0u) << "what was skipped is not tried again";
}

TEST_F(Bench, ItsScriptKeepsTheFolderThatItIsCalledFrom) {
  const std::string there = testing::kProgram.substr(0, testing::kProgram.rfind('/'));
  const std::string out = fs::relative(path("out"), there).string();
  const Outcome run =
      shell("cd " + there + " && " + testing::within_time() +
            "env MOELOOM_PROGRAM=./moeloom " MOELOOM_SOURCE_DIR "/launch/bench-ep.sh --ranks 1 --out " + out +
            tiny_model() + " --mode layer --samples 1");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_FALSE(rows().empty());
}

TEST_F(Bench, ItsScriptMeasuresSeveralWorldsIntoOneReport) {
  const std::string script =
      "MOELOOM_PROGRAM=" + testing::kProgram + " " MOELOOM_SOURCE_DIR "/launch/bench-ep.sh ";
  const Outcome run = shell(testing::within_time() + "env " + script + "--ranks 1,2 --out " + path("out") +
                            tiny_model() + " --mode layer --scaling strong --gmm 0,force --samples 2");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  std::set<Index> worlds;
  for (const EpRow& row : rows()) worlds.insert(row.ranks);
  EXPECT_EQ(worlds, (std::set<Index>{1, 2}));
  EXPECT_EQ(rows().size(), 2u + 4u);
  EXPECT_TRUE(rows().front().commit.starts_with("program-"));
  EXPECT_EQ(count_of(text_of_file("report.html"), "<span>ranks</span>"), 1u) << "worlds of several sizes";
  for (const char* words : {"--study --ranks 2", "--study --layers 1", "--study --hostfile none"}) {
    const Outcome wrong = shell("env " + script + words + " --out " + path("study"));
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_EQ(count_of(wrong.output, "\n"), 1u) << wrong.output;
    EXPECT_FALSE(fs::exists(path("study")));
  }
  const Outcome refused = shell("env " + script + "--ranks 1,x");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(count_of(refused.output, "--ranks \"1,x\" must be numbers of ranks with commas"), 1u)
      << refused.output;
}

}  // namespace
}  // namespace moeloom
