#include "moeloom/measure/sweep/points.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

BenchEpOptions parsed(std::vector<const char*> words) {
  words.insert(words.begin(), "ep");
  std::vector<std::string> violations;
  BenchEpOptions options = parse_bench_ep_options(static_cast<int>(words.size()), words.data(), violations);
  EXPECT_EQ(violations, std::vector<std::string>());
  return options;
}

std::string refusal(std::vector<const char*> words, Index world = 2) {
  words.insert(words.begin(), "ep");
  std::vector<std::string> violations;
  const BenchEpOptions options =
      parse_bench_ep_options(static_cast<int>(words.size()), words.data(), violations);
  for (const std::string& each : bench_ep_violations(options, options.model.shape, world))
    violations.push_back(each);
  std::string text;
  for (const std::string& each : violations) text += each + "\n";
  return text;
}

std::size_t points_in(const std::vector<EpGroup>& groups) {
  std::size_t count = 0;
  for (const EpGroup& group : groups) count += group.size();
  return count;
}

TEST(BenchEpPoints, DefaultsSweepEveryDivisorOfTheRanks) {
  const std::vector<EpGroup> groups = groups_of(parsed({}), 8, 6);
  ASSERT_EQ(groups.size(), 4u) << "a layer and a step, strong and weak";
  std::set<Index> eps;
  for (const EpPoint& point : groups.front()) eps.insert(point.ep);
  EXPECT_EQ(eps, (std::set<Index>{1, 2, 3, 6}));
  EXPECT_EQ(points_in(groups), 4u * 4 * 3);
  EXPECT_EQ(points_in(groups_of(parsed({}), 4, 8)), 4u * 3 * 3) << "ep = 8 would leave ranks without experts";
}

TEST(BenchEpPoints, EveryListMultipliesAndEachWordCountsOnce) {
  const BenchEpOptions options =
      parsed({"--mode", "layer", "--scaling", "weak", "--ep", "2,1,2", "--gmm", "on,off", "--dispatcher",
              "alltoall,shared", "--workloads", "all", "--tokens-per-rank", "10"});
  const std::vector<EpGroup> groups = groups_of(options, 8, 4);
  EXPECT_EQ(groups.size(), kWorkloads.size());
  EXPECT_EQ(points_in(groups), kWorkloads.size() * 2 * 2 * 2);
  std::set<std::string> texts;
  for (const EpGroup& group : groups)
    for (const EpPoint& point : group) {
      texts.insert(text_of(point));
      EXPECT_EQ(point.tokens, 40);
    }
  EXPECT_EQ(texts.size(), points_in(groups));
}

TEST(BenchEpPoints, ALoopOverExpertsHasNoPointInBf16) {
  const std::vector<EpGroup> groups =
      groups_of(parsed({"--mode", "layer", "--scaling", "strong", "--dtype", "fp32,bf16"}), 8, 1);
  EXPECT_EQ(points_in(groups), 5u);
  EXPECT_NE(refusal({"--gmm", "off", "--dtype", "bf16"}).find("leaves no point"), std::string::npos);
}

TEST(BenchEpPoints, SettingsTellApartWhatIsNotInAPoint) {
  const ModelConfig config;
  ModelConfig wider;
  wider.hidden_size = 512;
  const auto text = [&](std::vector<const char*> words, const std::vector<std::string>& given) {
    return settings_text(parsed(std::move(words)), config, given, "cpu");
  };
  const std::string base = text({}, {});
  EXPECT_EQ(text({"--ep", "1", "--out", "x", "--fresh"}, {"MOELOOM_LOG=debug", "MOELOOM_GMM_PATCH=1"}), base);
  const std::set<std::string> different = {base,
                                           text({"--samples", "5"}, {}),
                                           text({"--warmup", "5"}, {}),
                                           text({"--seed", "5"}, {}),
                                           text({"--seq-len", "5"}, {}),
                                           text({"--commit", "abc"}, {}),
                                           text({}, {"MOELOOM_FUSED_OPS=0"}),
                                           settings_text(parsed({}), config, {}, "another cpu"),
                                           settings_text(parsed({}), wider, {}, "cpu")};
  EXPECT_EQ(different.size(), 9u);
}

TEST(BenchEpPoints, BadOptionsAreRefusedWithTheirArithmetic) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
      {{"--ep", "3"}, "ep = 3 does not divide the 2 ranks; choose ep from 1, 2"},
      {{"--ep", "two"}, "--ep = \"two\": expected"},
      {{"--gmm", "on,maybe"}, "--gmm = \"on,maybe\": \"maybe\" is none of: off, on, auto"},
      {{"--workloads", "hot"}, "\"hot\" is none of: balanced, hot-experts"},
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
      {{"--model", "x", "--hidden", "4"}, "--model takes the shape from its config.json; remove --hidden"},
      {{"--threads", "-2"}, "threads = -2"},
      {{"--out", ""}, "--out DIR must not be empty"},
      {{"--scalling", "weak"}, "did you mean --scaling?"}};
  for (const auto& [words, part] : cases)
    EXPECT_NE(refusal(words).find(part), std::string::npos) << part << "\n" << refusal(words);
  EXPECT_EQ(refusal({"--mode", "layer", "--tokens", "1000"}), "") << "a layer needs no whole sequences";
}

TEST(BenchEpPoints, HelpListsEveryOptionWithItsWords) {
  const std::string help = bench_ep_help();
  for (const char* part :
       {"--mode LIST",  "--scaling LIST",   "--ep LIST",     "--gmm LIST",  "--dispatcher LIST",
        "--dtype LIST", "--workloads LIST", "rotating-hot",  "--tokens N",  "--tokens-per-rank N",
        "--seq-len N",  "--warmup N",       "--samples N",   "--seed N",    "--threads N",
        "--out DIR",    "--fresh BOOL",     "--commit TEXT", "--model DIR", "launch/bench-ep.sh"})
    EXPECT_NE(help.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace moeloom
