#include "moeloom/base/errors.hpp"

#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "cli/parse.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::parse;

PlanOptions plan(std::vector<const char*> words) {
  return parse(parse_plan_options, std::move(words));
}

TEST(PlanOptions, EveryOptionSetsItsField) {
  const PlanOptions options = plan({"--layers",
                                    "2",
                                    "--ranks",
                                    "1024",
                                    "--ranks-per-node",
                                    "64",
                                    "--processors",
                                    "96",
                                    "--memory",
                                    "512GiB",
                                    "--net",
                                    "200Gbit,2us",
                                    "--tokens-per-rank",
                                    "8192",
                                    "--seq-len",
                                    "512",
                                    "--accumulate",
                                    "2",
                                    "--expert-load",
                                    "1.5",
                                    "--threads",
                                    "3",
                                    "--dtype",
                                    "bf16",
                                    "--gmm-budget",
                                    "1GiB",
                                    "--offload",
                                    "/disk",
                                    "--calibrate",
                                    "--rows",
                                    "5",
                                    "--data",
                                    "a.bin",
                                    "--json",
                                    "b.json"});
  EXPECT_EQ(options.model.shape.num_hidden_layers, 2);
  EXPECT_EQ(options.ranks, 1024);
  EXPECT_EQ(options.ranks_per_node, 64);
  EXPECT_EQ(options.processors, 96);
  EXPECT_EQ(options.memory_bytes, Index{512} << 30);
  EXPECT_DOUBLE_EQ(options.network.bytes_per_second, 25e9);
  EXPECT_EQ(options.tokens_per_rank, 8192);
  EXPECT_EQ(options.sequence_length, 512);
  EXPECT_EQ(options.accumulate, 2);
  EXPECT_EQ(options.expert_load, 1.5);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.dtype, DType::kBF16);
  EXPECT_EQ(options.gmm_budget_bytes, Index{1} << 30);
  EXPECT_EQ(options.keeping.offload, "/disk");
  EXPECT_TRUE(options.calibrate);
  EXPECT_EQ(options.rows, 5);
  EXPECT_EQ(options.data, "a.bin");
  EXPECT_EQ(options.json, "b.json");
  EXPECT_EQ(plan({"--ranks", "8"}).ranks_per_node, 8) << "one node";
}

TEST(PlanOptions, WhatDoesNotFitSaysItsArithmetic) {
  const auto why = [](std::vector<const char*> words) -> std::string {
    try {
      plan(std::move(words));
    } catch (const ConfigError& error) {
      return with_flag_names(error.what());
    }
    return "";
  };
  EXPECT_NE(why({"--routing", "trace:a", "--expert-load", "2"}).find("two answers"), std::string::npos);
  EXPECT_NE(why({"--optimizer", "muon", "--lora", "r=2"})
                .find("--optimizer cannot be had with --lora: its factors"),
            std::string::npos);
  EXPECT_EQ(why({"--optimizer", "adamw", "--masters", "fp32", "--lora", "r=2"}), "");
  EXPECT_NE(why({"--routing", "zipf"}).find("--routing zipf is no trace:FILE"), std::string::npos);
  EXPECT_NE(why({"--tokens-per-rank", "1000"}).find("256 x 1 = 256; choose 1024"), std::string::npos);
  EXPECT_NE(why({"--ranks", "6", "--ranks-per-node", "4"}).find("does not divide ranks = 6"),
            std::string::npos);
  EXPECT_NE(why({"--net", "fast"}).find("200Gbit,2us"), std::string::npos) << why({"--net", "fast"});
  EXPECT_NE(why({"--ranks", "0"}).find("ranks = 0"), std::string::npos);
  EXPECT_NE(why({"--expert-load", "0.9"}).find("expert-load = 0.9 is below 1"), std::string::npos);
  EXPECT_NE(why({"--model", "a", "--layers", "2"}).find("remove --layers"), std::string::npos);
}

TEST(CalibrateOptions, EveryOptionSetsItsField) {
  const CalibrateOptions options =
      parse(parse_calibrate_options,
            {"--hidden", "64", "--seq-len", "32", "--threads", "2", "--dtype", "bf16", "--seconds", "0.5"});
  EXPECT_EQ(options.model.shape.hidden_size, 64);
  EXPECT_EQ(options.sequence_length, 32);
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.dtype, DType::kBF16);
  EXPECT_EQ(options.seconds, 0.5);
  EXPECT_THROW(parse(parse_calibrate_options, {"--seconds", "0"}), ConfigError);
  EXPECT_THROW(parse(parse_calibrate_options, {"--seq-len", "0"}), ConfigError);
}

TEST(PlanOptions, HelpNamesEveryOption) {
  for (const char* name :
       {"--ranks", "--ranks-per-node", "--processors", "--memory", "--net", "--tokens-per-rank", "--seq-len",
        "--accumulate", "--expert-load", "--threads", "--dtype", "--gmm-budget", "--calibrate", "--rows",
        "--data", "--json", "--layers"})
    EXPECT_NE(plan_help().text.find(name), std::string::npos) << name;
  for (const char* name : {"--seconds", "--seq-len", "--model"})
    EXPECT_NE(calibrate_help().text.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace moeloom
