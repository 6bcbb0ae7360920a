// The program as a person meets it: whole commands under mpirun. Resumed runs and bad input have files of
// their own.
#include "moeloom/kernels/grouped_matmul.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::alone;
using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::shell;

class Commands : public testing::ProgramTest {};

TEST_F(Commands, TrainLeavesMetricsAReportAndACheckpointThatGenerateAndInspectRead) {
  const Outcome run = shell(train(2, "--ep 2 --steps 6 --save-every 3 --eval-every 3"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("val_loss"), std::string::npos) << run.output;
  EXPECT_EQ(losses("run").size(), 6u);
  for (const char* file : {"report.html", "train.log", "train.conf", "checkpoint-6/model.safetensors"})
    EXPECT_TRUE(fs::exists(fs::path(path("run")) / file)) << file;
  const Outcome text = shell(alone() + "generate --model " + path("run") + " --prompt And --tokens 12");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  EXPECT_TRUE(text.output.starts_with("And")) << text.output;
  const Outcome spread =
      shell(on_ranks(2) + "generate --ep 2 --model " + path("run") + " --prompt And --tokens 12");
  EXPECT_EQ(spread.output, text.output) << "the text does not depend on ep";
  const Outcome inspected = shell(alone() + "inspect " + path("run") + " --ranks 4 --ep 2");
  EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  EXPECT_NE(inspected.output.find("experts.3.down_proj.weight"), std::string::npos);
}

TEST_F(Commands, TrainsTheSameWithEveryDispatcherAndSaysWhichAndWhy) {
  struct Case {
    const char* run;
    const char* flags;
    const char* said;
  };
  const std::vector<Case> cases = {
      {"alltoall", "--dispatcher alltoall", "dispatcher=alltoall reason=\"--dispatcher alltoall\""},
      {"shared", "--dispatcher shared", "dispatcher=shared reason=\"--dispatcher shared\""},
      {"wide", "--hidden 64",
       "dispatcher=shared reason=\"the 2 ranks of ep share their node's memory, 8192 bytes"},
      {"auto", "", "dispatcher=alltoall reason=\"2048 bytes a pair of ranks are below 4096"}};
  for (const Case& c : cases) {  // of 5 experts one rank holds 3
    const Outcome run = shell(train(2, "--ep 2 --experts 5 --steps 3 --run " + path(c.run) + " " + c.flags));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, c.said), 1u) << c.run << ": " << run.output;
  }
  EXPECT_EQ(losses("shared"), losses("alltoall"));
  EXPECT_EQ(losses("auto"), losses("alltoall"));
  const Outcome refused = shell(train(2, "--ep 2 --dispatcher fast"));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_EQ(count_of(refused.output, "valid: auto, alltoall, shared, hierarchical"), 1u) << refused.output;
}

TEST_F(Commands, TrainsAcrossPretendedNodesWithTheSameBitsAndFewerBytes) {
  struct Case {
    const char* run;
    const char* flags;
    const char* said;
  };
  const std::vector<Case> cases = {
      {"alltoall", "--dispatcher alltoall", "dispatcher=alltoall"},
      {"small", "", "dispatcher=alltoall reason=\"the 2 ranks of ep lie on 2 nodes: a layer's exchange by"},
      {"auto", "--net 1Mbit,1us",
       "dispatcher=hierarchical reason=\"the 2 ranks of ep lie on 2 nodes: a layer's"},
      {"fast", "--dispatcher hierarchical --combine fast", "dispatcher=hierarchical"},
      {"narrow", "--dispatcher hierarchical --wire-dtype bf16", "dispatcher=hierarchical"}};
  for (const Case& c : cases) {
    const Outcome run =
        shell("MOELOOM_PRETEND_NODES=2 " +
              train(2, "--ep 2 --experts 8 --top-k 4 --steps 3 --run " + path(c.run) + " " + c.flags));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, c.said), 1u) << c.run << ": " << run.output;
  }
  EXPECT_EQ(losses("auto"), losses("alltoall"));
  const auto last_step = [&](const char* run) { return read_metrics(path(run) + "/metrics.jsonl").back(); };
  // Copies for experts of the other rank, which is the other node: the same rows however they travel.
  EXPECT_GT(last_step("alltoall").row_bytes, 0);
  EXPECT_EQ(last_step("auto").row_bytes, last_step("alltoall").row_bytes);
  const auto wire_share = [&](const char* run) {
    const StepMetrics step = last_step(run);
    return static_cast<double>(step.network_bytes) / static_cast<double>(step.row_bytes);
  };
  EXPECT_GT(wire_share("alltoall"), 1.0);  // rows and the numbers beside them
  EXPECT_LT(wire_share("auto"), 0.95);
  EXPECT_LT(wire_share("fast"), wire_share("auto"));
  EXPECT_LT(wire_share("narrow"), 0.75 * wire_share("auto"));
  const Outcome refused = shell(train(2, "--ep 2 --dispatcher shared --wire-dtype bf16"));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_EQ(count_of(refused.output, "rows in the node's memory stay fp32"), 1u) << refused.output;
}

TEST_F(Commands, OverlapLeavesTheLossesAsTheyAreAndSaysWhy) {
  struct Case {
    const char* run;
    const char* flags;
    const char* said;
  };
  const std::vector<Case> cases = {
      {"off", "--overlap off", "overlap=off reason=\"--overlap off\""},
      {"one", "--overlap 1", "overlap=1 reason=\"--overlap 1\""},
      {"two", "--overlap 2", "overlap=2 reason=\"--overlap 2\""},  // of 3 and 2 experts
      {"chosen", "--dispatcher auto --overlap 2",
       "dispatcher=alltoall reason=\"the 2 ranks of ep lie on 2 nodes"},
      {"crossing", "--dispatcher hierarchical --overlap 2", "overlap=2 reason=\"--overlap 2\""},
      {"many", "--overlap 9", "overlap=2 reason=\"--overlap 9, cut to the experts of a rank: 2\""},
      {"auto", "", "overlap=off reason=\"2048 bytes a pair of ranks beside products of "}};
  for (const Case& c : cases) {
    const Outcome run = shell(
        "MOELOOM_PRETEND_NODES=2 " +
        train(2, "--ep 2 --experts 5 --steps 3 --dispatcher alltoall --run " + path(c.run) + " " + c.flags));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_EQ(count_of(run.output, c.said), 1u) << c.run << ": " << run.output;
    EXPECT_EQ(losses(c.run), losses("off")) << c.run;
  }
  const Outcome wide = shell(
      "MOELOOM_PRETEND_NODES=2 " +
      train(2, "--ep 2 --dispatcher alltoall --hidden 1024 --inter 512 --steps 1 --run " + path("wide")));
  EXPECT_EQ(count_of(wide.output, "overlap=2 reason=\"131072 bytes a pair of ranks beside products of"), 1u)
      << wide.output;
  const Outcome unknown = shell(train(2, "--ep 2 --overlap 0"));
  EXPECT_EQ(count_of(unknown.output, "valid: auto, off, or a number of chunks from 1"), 1u) << unknown.output;
}

TEST_F(Commands, AModelFolderWithAConfigAloneSaysThatItsWeightsAreInitial) {
  ASSERT_EQ(shell(train(1, "--steps 1")).exit_code, 0);
  fs::create_directories(path("model"));
  fs::copy(path("run/checkpoint-1/config.json"), path("model/config.json"));
  const std::string from_folder = on_ranks(2) + "train --steps 1 --seq-len 16 --global-batch 4 --data " +
                                  path("corpus.txt") + " --model " + path("model") + " --run " + path("new");
  const Outcome initial = shell(from_folder);
  EXPECT_EQ(initial.exit_code, 0) << initial.output;
  EXPECT_EQ(count_of(initial.output, "[warning] weights=initial reason=\"" + path("model")), 1u)
      << initial.output;
  std::ofstream(path("model/model-00001-of-00002.safetensors")) << "x";
  const Outcome shards = shell(from_folder + " --overwrite");
  EXPECT_NE(shards.exit_code, 0);
  EXPECT_EQ(count_of(shards.output, "holds model-00001-of-00002.safetensors, but no weights"), 1u)
      << shards.output;
}

TEST_F(Commands, AResumedRunKeepsItsPathOfTheExpertsAndNothingIsMeasured) {
  const Outcome run = shell("MOELOOM_GMM_PATCH=0 " + train(2, "--ep 2 --steps 2"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const auto recorded =
      TrainerState::from(Document::read(fs::path(path("run")) / "checkpoint-2" / "trainer_state.json"));
  EXPECT_FALSE(recorded.gmm_applied);
  const Outcome resumed =
      shell("MOELOOM_GMM_PATCH=auto " + on_ranks(2) + "train --steps 3 --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(count_of(resumed.output, "as the run recorded: " + recorded.gmm_reason), 2u) << resumed.output;
  EXPECT_FALSE(fs::exists(path("cache"))) << "something was measured";
  const Outcome measured = shell("MOELOOM_GMM_PATCH=measure " + train(2, "--steps 1 --overwrite"));
  EXPECT_NE(measured.exit_code, 0);
  EXPECT_EQ(count_of(measured.output, "auto decides by a rule, and `moeloom calibrate` measures"), 1u)
      << measured.output;
}

TEST_F(Commands, KernelsDecidesByTheRuleAndSaysWhy) {
  const Outcome by_rule =
      shell(alone() + "kernels --layers 2 --hidden 16 --inter 8 --experts 4 --seq-len 64");
  EXPECT_NE(by_rule.output.find("GMM        auto: no flag is set"), std::string::npos) << by_rule.output;
  EXPECT_NE(by_rule.output.find("decision   grouped: a rank's expert weights (6 KiB a layer) are contiguous; "
                                "grouped products read the masters, because packing pays from 4"),
            std::string::npos)
      << by_rule.output;
}

TEST_F(Commands, KernelsExplainsEachDecision) {
  const Outcome kernels =
      shell("MOELOOM_GMM_PATCH=1 MOELOOM_FUSED_OPS=0 " + alone() + "kernels --ranks 1 --ep 1");
  EXPECT_EQ(kernels.exit_code, 0) << kernels.output;
  for (const char* part : {"fused_moe", "npu_fused_swiglu", "MOELOOM_FUSED_OPS", "not applied", "ep = 1"})
    EXPECT_NE(kernels.output.find(part), std::string::npos) << part << "\n" << kernels.output;
}

TEST_F(Commands, Bf16TrainsAsFp32DoesAndWithTheSameBitsAtEveryEpAndThreadCount) {
  const std::string grouped = "MOELOOM_GMM_PATCH=force ", emulated = grouped + "MOELOOM_BF16=emulate ";
  const auto trained = [&](const std::string& environment, const std::string& flags) {
    const Outcome run = shell(environment + train(4, "--overwrite true --steps 20 --lr 0.02 " + flags));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return losses("run");
  };
  const std::vector<double> fp32 = trained(grouped, "--ep 4");
  const std::vector<double> bf16 = trained(emulated, "--ep 4 --dtype bf16");
  ASSERT_EQ(fp32.size(), 20u);
  ASSERT_EQ(bf16.size(), 20u);
  EXPECT_LT(fp32.back(), 0.8 * fp32.front()) << "it must have learned something for this to be a test";
  EXPECT_NE(bf16, fp32);
  for (std::size_t i = 0; i < bf16.size(); ++i) EXPECT_NEAR(bf16[i], fp32[i], 0.02 * fp32[i]) << "step " << i;
  const TrainerState saved =
      TrainerState::from(Document::read(fs::path(path("run")) / "checkpoint-20" / "trainer_state.json"));
  EXPECT_EQ(saved.dtype, "bf16");
  EXPECT_EQ(trained(emulated, "--ep 1 --dtype bf16"), bf16);
  EXPECT_EQ(trained(emulated, "--ep 2 --dtype bf16"), bf16);
  EXPECT_EQ(trained(emulated, "--ep 4 --dtype bf16 --threads 3"), bf16);
}

TEST_F(Commands, WhatBf16CannotRunOnIsSaidAndRunsInFp32) {
  const Outcome loop = shell("MOELOOM_GMM_PATCH=0 MOELOOM_FUSED_OPS=0 MOELOOM_BF16=emulate " +
                             train(1, "--steps 1 --dtype bf16"));
  EXPECT_EQ(loop.exit_code, 0) << loop.output;
  EXPECT_EQ(
      count_of(loop.output, "dtype=fp32 reason=\"bf16 was asked for; only fused_moe and tiled_dense have it"),
      1u)
      << loop.output;
  if (cpu_has_bf16()) return;
  const Outcome cpu = shell("MOELOOM_GMM_PATCH=force " + train(1, "--overwrite true --steps 1 --dtype bf16"));
  EXPECT_EQ(count_of(cpu.output, "dtype=fp32 reason=\"bf16 was asked for; " + std::string(why_no_bf16())), 1u)
      << cpu.output;
}

TEST_F(Commands, UnknownCommandsAndHelpAreAnswered) {
  EXPECT_NE(shell(alone() + "fly").exit_code, 0);
  for (const char* command : {"", "train", "generate", "inspect", "convert", "tokenize", "kernels"}) {
    const Outcome help = shell(alone() + command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_GT(help.output.size(), 200u) << command;
    EXPECT_EQ(shell(on_ranks(2) + command + " --help").output, help.output) << "once, on two ranks";
  }
  EXPECT_EQ(count_of(shell(on_ranks(2) + "fly").output, "unknown command"), 1u);
}

TEST_F(Commands, AModelWithoutByteIdsIsAskedInIds) {
  const Outcome run = shell(train(2, "--vocab 512 --steps 2"));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("sample=no reason=\"the model has no tokenizer: vocab_size = 512"),
            std::string::npos)
      << run.output;
  const std::string eval =
      on_ranks(2) + "eval --seq-len 16 --model " + path("run") + " --data " + path("corpus.txt");
  const Outcome bytes = shell(eval);
  EXPECT_EQ(bytes.exit_code, 0) << "as it was trained: " << bytes.output;
  EXPECT_EQ(count_of(bytes.output, "\ncorpus.txt "), 1u) << bytes.output;
  EXPECT_EQ(count_of(bytes.output, "tokenizer=none reason=\"bytes are read as ids 0 to 255\""), 1u)
      << bytes.output;
  EXPECT_EQ(count_of(shell(eval + " --data " + path("corpus.txt")).output, "and bytes need 256"), 1u)
      << "train needs a tokenizer for several sources, too";
  const Outcome text = shell(on_ranks(2) + "generate --prompt And --model " + path("run"));
  EXPECT_NE(text.exit_code, 0);
  EXPECT_EQ(count_of(text.output, "vocab_size = 512, and bytes need 256"), 1u) << text.output;
  const Outcome outside =
      shell(alone() + "generate --prompt-ids 1,512 --tokens 99999 --model " + path("run"));
  EXPECT_NE(outside.exit_code, 0);
  EXPECT_EQ(count_of(outside.output, "--prompt-ids holds 512, but ids go from 0 to 511"), 1u);
  EXPECT_EQ(count_of(outside.output, "max_position_embeddings"), 1u) << "in the same answer";
  const Outcome ids = shell(on_ranks(2) + "generate --prompt-ids 1,511,3 --tokens 4 --model " + path("run"));
  EXPECT_EQ(ids.exit_code, 0) << ids.output;
  EXPECT_TRUE(ids.output.starts_with("1,511,3,")) << ids.output;
  EXPECT_EQ(count_of(ids.output, ","), 6u) << ids.output;
}

TEST_F(Commands, RanksShareTheProcessorsOfTheirNode) {
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  for (const int ranks : {1, 2, 4}) {
    const Outcome run = shell("unset OMP_NUM_THREADS; " + train(ranks, "--overwrite --steps 1"));
    const std::string share = std::to_string(std::max(1, processors / ranks)) + " thread(s) a rank";
    EXPECT_NE(run.output.find(share), std::string::npos) << share << "\n" << run.output;
  }
  const std::string asked = train(2, "--overwrite --steps 1");
  EXPECT_EQ(count_of(shell("OMP_NUM_THREADS=3 " + asked).output, " 3 thread(s) a rank"), 1u);
  EXPECT_EQ(count_of(shell("OMP_NUM_THREADS=3 " + asked + " --threads 2").output, " 2 thread(s) a rank"), 1u);
}

}  // namespace
}  // namespace moeloom
