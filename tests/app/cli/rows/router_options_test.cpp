#include "moeloom/model/hf/config.hpp"

#include <array>

#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "fields/train_fields.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TrainOptions options_of(const std::vector<const char*>& words) {
  std::vector<const char*> all = {"train", "--data", "x"};
  all.insert(all.end(), words.begin(), words.end());
  return parse_train_options(static_cast<int>(all.size()), all.data());
}

bool says(const std::vector<std::string>& violations, const std::string& words) {
  for (const std::string& violation : violations)
    if (with_flag_names(violation).find(words) != std::string::npos) return true;
  return false;
}

TEST(RouterOptions, AreReadAndWrittenBackAlike) {
  const TrainOptions options =
      options_of({"--router", "hash", "--router-dtype", "fp64", "--capacity-factor", "1.25", "--aux-loss",
                  "layer", "--aux-loss-over", "sequence", "--router-bias-rate", "0.001", "--row-budget",
                  "100", "--force-routing", "zipf"});
  EXPECT_EQ(options.router.kind, RouterKind::kHash);
  EXPECT_EQ(options.router.dtype, RouterDType::kFp64);
  EXPECT_EQ(options.router.training.capacity_factor, 1.25);
  EXPECT_EQ(options.router.aux_loss_pooled, false);
  EXPECT_EQ(options.router.aux_loss_over, BalanceOver::kSequence);
  EXPECT_EQ(options.router.bias_rate, 0.001);
  EXPECT_EQ(options.router.row_budget, 100);
  const std::string conf = resolved_config(options);
  for (const char* line :
       {"router = hash", "router-dtype = fp64", "capacity-factor = 1.25", "aux-loss = layer",
        "aux-loss-over = sequence", "router-bias-rate = 0.001", "row-budget = 100", "force-routing = zipf"})
    EXPECT_NE(conf.find(std::string("\n") + line + "\n"), std::string::npos) << line;
}

TEST(RouterOptions, RefuseWhatContradictsItself) {
  struct Case {
    std::vector<const char*> words;
    const char* part;
  };
  for (const Case& c :
       {Case{{"--capacity-factor", "-1"}, "capacity-factor"}, Case{{"--row-budget", "-1"}, "row-budget"},
        Case{{"--router", "expert-choice", "--capacity-factor", "1"},
             "--capacity-factor cannot be had with --router expert-choice"},
        Case{{"--router", "expert-choice", "--aux-loss-coef", "1"},
             "--aux-loss-coef cannot be had with --router expert-choice"},
        Case{{"--router", "hash", "--aux-loss-coef", "1"},
             "--aux-loss-coef cannot be had with --router hash"},
        Case{{"--aux-loss", "pooled", "--aux-loss-over", "sequence"}, "has no sequences"},
        Case{{"--router", "hash", "--force-routing", "zipf"},
             "--force-routing cannot be had with --router hash"},
        Case{{"--router", "hash", "--replay-routing", "f"},
             "--replay-routing cannot be had with --router hash"},
        Case{{"--router", "expert-choice", "--record-routing", "f"},
             "--record-routing cannot be had with --router expert-choice"},
        Case{{"--force-routing", "zipf", "--replay-routing", "f"},
             "--replay-routing cannot be had with --force-routing"},
        Case{{"--router-bias-rate", "0.001", "--lora", "r=2"},
             "--router-bias-rate cannot be had with --lora"}})
    EXPECT_TRUE(says(option_violations(options_of(c.words), 2), c.part)) << c.part;
  EXPECT_THROW(options_of({"--force-routing", "even"}), ConfigError);
}

TEST(RouterOptions, RefuseWhatTheModelDoesNotHave) {
  ModelConfig softmax, dense, hash, deepseek;
  dense.num_experts = 0;
  hash.hash_router = true;
  deepseek.model_type = "deepseek_v3";
  EXPECT_TRUE(says(router_violations(options_of({"--router-bias-rate", "0.001"}), softmax),
                   "qwen3_moe has none; families that have them: afmoe"));
  EXPECT_TRUE(router_violations(options_of({"--router-bias-rate", "0.001"}), deepseek).empty());
  ModelConfig adapted = deepseek;
  adapted.adapter = AdapterSettings();  // of a run that goes on, whose options need not say so
  EXPECT_TRUE(says(router_violations(options_of({"--router-bias-rate", "0.001"}), adapted), "the adapter"));
  EXPECT_TRUE(says(router_violations(options_of({"--capacity-factor", "1"}), dense), "no layer"));
  EXPECT_TRUE(says(router_violations(options_of({"--row-budget", "9"}), dense), "no layer"));
  EXPECT_TRUE(says(router_violations(options_of({"--row-budget", "3", "--ep", "2"}), softmax), "the 4 rows"));
  EXPECT_TRUE(says(router_violations(options_of({"--router", "expert-choice"}), deepseek), "no groups"));
  EXPECT_TRUE(says(router_violations(options_of({"--router", "top-k"}), hash), "has a hash router"));
  EXPECT_TRUE(router_violations(options_of({}), hash).empty());
  softmax.num_experts_per_tok = 8;
  EXPECT_TRUE(
      says(router_violations(options_of({"--force-routing", "zero-load"}), softmax), "--force-routing"));
}

}  // namespace
}  // namespace moeloom
