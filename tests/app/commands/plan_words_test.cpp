#include "commands/plan_words.hpp"

#include "plan/made_up_job.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::made_up_job;
using testing::made_up_rates;

TEST(PlanWords, SaysWhereItExtrapolates) {
  EXPECT_TRUE(extrapolations(made_up_job(2, 2), made_up_rates(2), {}).empty());
  EXPECT_EQ(extrapolations(made_up_job(2, 2), made_up_rates(1), {}).size(), 3u) << "memory, links, ranks";
  PlanOptions given;
  given.network.bytes_per_second = 1e9;
  const auto far = extrapolations(made_up_job(1024, 64), made_up_rates(2), given);
  ASSERT_EQ(far.size(), 3u);
  EXPECT_NE(far.back().find("1024 ranks are extrapolated from 2; routing is taken as even"),
            std::string::npos)
      << far.back();
  PlannedJob uneven = made_up_job(1024, 64);
  uneven.job.exchange.expert_rows = {{3, 1}};
  EXPECT_EQ(extrapolations(uneven, made_up_rates(2), given).back().find("even"), std::string::npos);
}

TEST(PlanWords, SaysWhatReplicasGainOfUnevenRowsAndOfEvenOnesFromWhereTheyPay) {
  PlannedJob planned = made_up_job(4, 4);
  Job job = job_at(planned, 4);
  const RebalanceRates free{.row_products = 3000};
  const std::string even = gain_text(planned.config, job, free);
  EXPECT_TRUE(even.starts_with("replicas pay from 1.") &&
              even.ends_with(" times the mean rows on one expert"))
      << even;
  job.exchange.expert_rows = {rows_with_fullest(planned.config.num_experts, 4)};
  const std::string uneven = gain_text(planned.config, job, free);
  EXPECT_TRUE(uneven.starts_with("it would save ") && uneven.ends_with(" that uneven rows cost")) << uneven;
  const CrossingNanoseconds slow{.row = 0, .weights = 1'000'000'000'000, .gradients = 0};
  const RebalanceRates dear{.row_products = 3000, .on_node = slow, .between_nodes = slow};
  EXPECT_TRUE(gain_text(planned.config, job, dear).starts_with("it would save 0 ms a step of the "))
      << gain_text(planned.config, job, dear);
  job.exchange.expert_rows = {};
  EXPECT_EQ(gain_text(planned.config, job, dear), "replicas pay at no load of an expert");
}

TEST(PlanWords, CalibrationIsAdvisedForTheSizesThatThePlanReads) {
  PlannedJob planned = made_up_job(16, 8);
  planned.job.layout.threads = 4;
  PlanOptions options;
  options.model.folder = "model";
  const auto line = [&](Index nodes) { return calibrate_line(calibration_of(planned, options), 2, nodes); };
  EXPECT_EQ(line(1), "mpirun -n 2 moeloom calibrate --model model --seq-len 256 --threads 4");
  planned.dtype = DType::kBF16;
  EXPECT_EQ(line(2),
            "mpirun -n 4 --map-by ppr:2:node moeloom calibrate --model model --seq-len 256 --threads 4 "
            "--dtype bf16");
  auto notes = extrapolations(planned, made_up_rates(1), options);
  ASSERT_EQ(notes.size(), 3u) << "memory, links, ranks";
  EXPECT_EQ(notes[0],
            "rates are of 1 busy ranks; 2 a node share its memory: `" + line(1) + "` measures that");
  EXPECT_NE(notes[1].find("`" + line(1) + "` does"), std::string::npos) << notes[1];
  planned.job.layout.threads = 8;
  notes = extrapolations(planned, made_up_rates(1), options);
  ASSERT_EQ(notes.size(), 2u) << "no two ranks have processors of their own to measure on";
  EXPECT_EQ(notes[0].find("calibrate"), std::string::npos) << notes[0];
}

TEST(PlanWords, TheLineSaysEverythingThatThePointDoes) {
  PlanOptions options;
  options.model.shape.num_hidden_layers = 6;
  options.model.shape_given = {"layers"};
  options.data = "text.bin";
  PredictedPoint point{.job = {.batch = {.sequences = 16384, .length = 256, .micro_batches = 2},
                               .exchange = {.dispatcher = DispatcherKind::kShared},
                               .layout = {.mesh = {16, 64}, .ranks_per_node = 64}}};
  EXPECT_EQ(run_line(options, point, {}),
            "mpirun -n 1024 --map-by ppr:64:node moeloom train --layers 6 --ep 64 --seq-len 256 "
            "--global-batch 16384 --accumulate 2 --dispatcher shared --data text.bin");
  options.model.folder = "model";
  options.threads = 2;
  options.dtype = DType::kBF16;
  options.gmm_budget_bytes = 1 << 20;
  point.job.layout.mesh = {2, 1, {"dp", "ep"}};
  point.job.batch.sequences = 32;
  EXPECT_EQ(run_line(options, point, {}),
            "mpirun -n 2 moeloom train --model model --ep 1 --seq-len 256 --global-batch 32 --accumulate 2 "
            "--threads 2 --dtype bf16 --gmm-budget 1MiB --data text.bin");
  options.ranks = 2;
  options.memory_bytes = Index{6} << 30;
  EXPECT_EQ(memory_of_a_rank(options), Index{6} << 30) << "one rank a node, by default of the struct";
  options.ranks_per_node = 2;
  EXPECT_NE(run_line(options, point, {}).find(" --memory 3GiB --data"), std::string::npos)
      << run_line(options, point, {});
}

TEST(PlanWords, ALineCanBePastedIntoAShell) {
  PlanOptions options;
  options.model.folder = "my models/it's";
  options.data = "a b.txt";
  const std::string line = run_line(options, {}, {});
  EXPECT_NE(line.find(" --model 'my models/it'\\''s' "), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with(" --data 'a b.txt'")) << line;
  const CalibrateOptions measured = {.model = options.model};
  EXPECT_NE(calibrate_line(measured, 1, 1).find(" --model 'my models/it'\\''s' "), std::string::npos);
}

TEST(PlanWords, TheLineAsksForWhatTrainWouldNotDoUnasked) {
  PlanOptions options;
  options.model.folder = "model";
  PredictedPoint point{
      .job = {.batch = {.sequences = 16, .length = 256}, .layout = {.mesh = {1, 4}, .ranks_per_node = 2}},
      .grouped = true,
      .sparse = true};
  point.job.exchange.chunks = 2;
  GmmDecision unasked;
  unasked.apply = true;
  const auto says = [&](const std::string& words) {
    return run_line(options, point, unasked).find(words) != std::string::npos;
  };
  EXPECT_TRUE(says("--dispatcher alltoall --overlap 2 --data")) << run_line(options, point, unasked);
  EXPECT_FALSE(says("GMM_PATCH")) << "train runs them grouped";
  unasked.apply = false;
  EXPECT_TRUE(says("mpirun -n 4 --map-by ppr:2:node -x MOELOOM_GMM_PATCH=force moeloom train"))
      << run_line(options, point, unasked);
  point.grouped = false;
  EXPECT_FALSE(says("GMM_PATCH")) << "train runs them as a loop";
  point.grouped = unasked.apply = true;
  point.job.exchange.chunks = 0;
  EXPECT_TRUE(says("--dispatcher alltoall --overlap off --data")) << run_line(options, point, unasked);
  options.overlap = false;
  EXPECT_TRUE(says("--overlap off --overlap-grad-reduce off --overlap-param-gather off --data"))
      << run_line(options, point, unasked);
  options.overlap = true;
  point.job.exchange.dispatcher = DispatcherKind::kHierarchical;
  EXPECT_TRUE(says("--dispatcher hierarchical --overlap off --data")) << run_line(options, point, unasked);
  point.job.exchange.dispatcher = DispatcherKind::kAlltoall;
  point.job.layout.ranks_per_node = 4;
  EXPECT_TRUE(says("--dispatcher alltoall --data")) << run_line(options, point, unasked);
  point.grouped = false;
  EXPECT_TRUE(says("mpirun -n 4 -x MOELOOM_GMM_PATCH=0 moeloom train")) << run_line(options, point, unasked);
  point.sparse = false;
  EXPECT_FALSE(says("GMM_PATCH")) << "a dense model has no experts to run as a loop";
}

TEST(PlanWords, TheAdviceNamesTheSmallestTheMemoryAndTheWayOut) {
  PlannedJob asked = made_up_job(4, 2);
  asked.memory_per_node = double(Index{64} << 30);
  PredictedPoint smallest{.job = {.exchange = {.dispatcher = DispatcherKind::kShared},
                                  .layout = {.mesh = {1, 4}, .ranks_per_node = 2}}};
  smallest.memory.activations = double(Index{58} << 30);
  const std::string nothing =
      "nothing fits: the smallest need is 58 GiB a rank (dp=1 ep=4, shared), 116 GiB for the 2 ranks of a "
      "node, which has 64 GiB beside program and MPI\n";
  EXPECT_EQ(memory_advice(asked, smallest, std::nullopt),
            nothing +
                "no other layout of these tokens fits, down to one rank a node with one sequence at a time; "
                "as it is the job needs nodes of 116 GiB\n");
  FittingJob fit{.job = smallest.job, .memory = {}};
  fit.job.batch = asked.job.batch;
  fit.memory.activations = double(Index{30} << 30);
  fit.job.batch.micro_batches = 16;
  EXPECT_EQ(memory_advice(asked, smallest, fit),
            nothing +
                "the cheapest change that fits, with the same tokens a step: --accumulate 16\n"
                "  30 GiB a rank (dp=1 ep=4, shared), 60 GiB for the 2 ranks of a node\n");
  fit.job.layout.mesh.ep = 1;
  fit.job.layout.mesh.dp = 4;
  fit.job.layout.ranks_per_node = 1;
  EXPECT_EQ(memory_advice(asked, smallest, fit),
            nothing +
                "the cheapest change that fits, with the same tokens a step, on 4 nodes instead of 2: "
                "--ranks-per-node 1 --accumulate 16\n"
                "  30 GiB a rank (dp=4 ep=1), alone on its node\n"
                "as it is the job needs nodes of 116 GiB\n");
}

}  // namespace
}  // namespace moeloom
