#include "cli/rows/bench_ep_options.hpp"

#include "cli/flag_names.hpp"
#include "cli/parse.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::string refusal(const std::vector<const char*>& words, Index world = 2) {
  std::string text;
  Violations violations;
  violations.attempt([&] {
    const BenchEpOptions options = testing::parse(parse_bench_ep_options, words);
    violations.add(bench_ep_violations(options, options.model.shape, world));
  });
  for (const std::string& each : violations.list()) text += with_flag_names(each) + "\n";
  return text;
}

TEST(BenchEpOptions, ListsAreReadInOneOrderAndEachWordCountsOnce) {
  const SweepSettings settings =
      testing::parse(parse_bench_ep_options, {"--ep", "2,1,2", "--gmm", "force,0,force", "--dispatcher",
                                              "alltoall,shared", "--workloads", "all", "--scaling", "weak"})
          .sweep;
  EXPECT_EQ(settings.eps, (std::vector<Index>{1, 2}));
  EXPECT_EQ(settings.gmm, (std::vector{GmmRequest::kNever, GmmRequest::kForce}));
  EXPECT_EQ(settings.dispatchers.size(), 2u);
  EXPECT_EQ(settings.workloads.size(), kWorkloads.size());
  EXPECT_EQ(settings.scalings, std::vector{Scaling::kWeak});
}

TEST(BenchEpOptions, BadOptionsAreRefusedWithTheirArithmetic) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
      {{"--ep", "3"}, "ep = 3 does not divide the 2 ranks; choose ep from 1, 2"},
      {{"--ep", "two"}, "--ep = \"two\": expected"},
      {{"--gmm", "1,on"}, "--gmm = \"1,on\": \"on\" is none of: 0, 1, auto, force"},
      {{"--gmm", "0", "--dtype", "bf16"}, "leaves no point"},
      {{"--workloads", "hottest"}, "\"hottest\" is none of: balanced, random, zipf, hot, hot-experts"},
      {{"--workloads", ""}, "\"\" is none of: balanced"},
      {{"--workloads", "random,trace:nowhere"},
       "--workloads = \"random,trace:nowhere\": cannot open nowhere"},
      {{"--mode", ""}, "\"\" is none of: layer, step"},
      {{"--samples", "0"}, "samples = 0 must be at least 1"},
      {{"--warmup", "-1"}, "warmup = -1 must be at least 0"},
      {{"--tokens", "0"}, "tokens = 0 must be at least 1"},
      {{"--tokens", "1000"},
       "tokens = 1000 is no multiple of 2 ranks x seq-len 128 = 256; choose 768, or another --seq-len"},
      {{"--tokens-per-rank", "100"}, "tokens-per-rank = 100 is no multiple of 1 ranks x seq-len 128 = 128"},
      {{"--hidden", "4", "--mode", "layer"}, "hidden = 4 is below experts = 8"},
      {{"--vocab", "100"}, "vocab = 100 is below 256"},
      {{"--experts", "0"}, "the model has no experts"},
      {{"--experts", "8", "--top-k", "6", "--workloads", "zero-load"},
       "loads 4 of 8 experts, fewer than top-k = 6"},
      {{"--model", "x", "--hidden", "4"}, "--model takes the shape from x/config.json; remove --hidden"},
      {{"--threads", "-2"}, "threads = -2"},
      {{"--out", ""}, "--out DIR is needed"},
      {{"--scalling", "weak"}, "did you mean --scaling?"}};
  for (const auto& [words, part] : cases)
    EXPECT_NE(refusal(words).find(part), std::string::npos) << part << "\n" << refusal(words);
  EXPECT_EQ(refusal({"--mode", "layer", "--tokens", "1000"}), "") << "a layer needs no whole sequences";
}

TEST(BenchEpOptions, HelpListsEveryOptionWithItsWords) {
  const std::string help = bench_ep_help().text;
  for (const char* part :
       {"--mode LIST",         "--scaling LIST",   "--ep LIST",     "--gmm LIST",  "--dispatcher LIST",
        "--dtype LIST",        "--workloads LIST", "rotating-hot",  "trace:FILE",  "--tokens N",
        "--tokens-per-rank N", "--seq-len N",      "--warmup N",    "--samples N", "--seed N",
        "--threads N",         "--out DIR",        "--commit TEXT", "--model DIR", "launch/bench-ep.sh"})
    EXPECT_NE(help.find(part), std::string::npos) << part;
}

TEST(BenchEpOptions, OfTheEnvironmentOnlyWhatChangesAMeasurementMakesPointsAnew) {
  RunFlags flags;
  flags.given = {"MOELOOM_LOG=debug", "MOELOOM_GMM_PATCH=1", "MOELOOM_FUSED_OPS=0"};
  EXPECT_EQ(decisive_environment(flags), std::vector<std::string>{"MOELOOM_FUSED_OPS=0"});
}

}  // namespace
}  // namespace moeloom
