#include "cli/environment.hpp"

#include "moeloom/base/errors.hpp"

#include <map>
#include <tuple>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Variables = std::map<std::string, std::string>;

RunFlags flags_of(const Variables& variables) {
  return read_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::vector<std::string> complaints(const Variables& variables) {
  try {
    flags_of(variables);
  } catch (const ConfigError& error) {
    return error.violations();
  }
  return {};
}

TEST(Environment, UnsetMeansPatchesOnAndNoWordOnGmm) {
  for (const Variables& variables :
       {Variables{}, Variables{{"MOELOOM_PATCH", " "}, {"MOELOOM_GMM_PATCH", ""}}}) {
    const RunFlags flags = flags_of(variables);
    EXPECT_TRUE(flags.patch && flags.fused_ops);
    EXPECT_FALSE(flags.gmm);
    EXPECT_EQ(flags.log_level, LogLevel::kInfo);
    EXPECT_TRUE(flags.given.empty());
  }
}

TEST(Environment, TheCacheFolderIsTheOneThatIsSetOrOfTheHomeFolder) {
  EXPECT_EQ(flags_of({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/h"}}).cache_folder, "/c");
  EXPECT_EQ(flags_of({{"XDG_CACHE_HOME", "relative"}, {"HOME", "/h"}}).cache_folder, "/h/.cache");
  EXPECT_EQ(flags_of({{"XDG_CACHE_HOME", ""}, {"HOME", "/h"}}).cache_folder, "/h/.cache");
  EXPECT_TRUE(flags_of({{"HOME", ""}}).cache_folder.empty());
  EXPECT_TRUE(flags_of({}).cache_folder.empty());
}

TEST(Environment, BooleansAreTrimmedAndLowerCased) {
  for (const char* text : {"1", "true", " ON ", "Yes\n"}) {
    EXPECT_TRUE(flags_of({{"MOELOOM_PATCH", text}}).patch) << text;
    EXPECT_TRUE(flags_of({{"TWINKLE_NPU_FUSED_OPS", text}}).fused_ops) << text;
  }
  for (const char* text : {"0", "FALSE", " off", "no\t"}) {
    EXPECT_FALSE(flags_of({{"TWINKLE_NPU_PATCH", text}}).patch) << text;
    EXPECT_FALSE(flags_of({{"MOELOOM_FUSED_OPS", text}}).fused_ops) << text;
  }
}

TEST(Environment, TheGmmPatchHasFourAnswersAndItsAliasTwo) {
  const std::vector<std::tuple<std::string, std::string, GmmRequest>> cases = {
      {"MOELOOM_GMM_PATCH", "0", GmmRequest::kNever},
      {"MOELOOM_GMM_PATCH", "off", GmmRequest::kNever},
      {"MOELOOM_GMM_PATCH", " 1 ", GmmRequest::kUpstreamRule},
      {"MOELOOM_GMM_PATCH", "Auto", GmmRequest::kAuto},
      {"MOELOOM_GMM_PATCH", "FORCE", GmmRequest::kForce},
      {"TWINKLE_NPU_GMM_PATCH", "0", GmmRequest::kNever},
      {"TWINKLE_NPU_GMM_PATCH", "no", GmmRequest::kNever},
      {"TWINKLE_NPU_GMM_PATCH", "1", GmmRequest::kUpstreamRule},
      {"TWINKLE_NPU_GMM_PATCH", "Yes", GmmRequest::kUpstreamRule}};
  for (const auto& [name, text, request] : cases) EXPECT_EQ(flags_of({{name, text}}).gmm, request) << text;
  EXPECT_EQ(complaints({{"MOELOOM_GMM_PATCH", " Measure "}}),
            (std::vector<std::string>{"MOELOOM_GMM_PATCH = measure is gone: auto decides by a rule, and "
                                      "`moeloom calibrate` measures"}));
}

TEST(Environment, ThreadsAreTheFirstNumberOfOmpNumThreads) {
  EXPECT_FALSE(flags_of({}).threads);
  EXPECT_FALSE(flags_of({{"OMP_NUM_THREADS", " "}}).threads);
  EXPECT_EQ(flags_of({{"OMP_NUM_THREADS", "3"}}).threads, 3);
  EXPECT_EQ(flags_of({{"OMP_NUM_THREADS", "4,2"}}).threads, 4);
  EXPECT_TRUE(flags_of({{"OMP_NUM_THREADS", "3"}}).given.empty()) << "ranks may differ in it";
  for (const char* text : {"0", "-1", "100000", "auto", "many", "1.5"})
    EXPECT_EQ(complaints({{"OMP_NUM_THREADS", text}}),
              std::vector<std::string>{std::string("OMP_NUM_THREADS = \"") + text +
                                       "\" is not valid; valid: 1 to 1024"});
}

EnvironmentLookup lookup_in(const Variables& variables) {
  return [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Environment, WithoutALauncherThereIsOneRank) {
  const auto rank_of = [&](const Variables& variables) { return launcher_rank(lookup_in(variables)); };
  const auto ranks_of = [&](const Variables& variables) { return launcher_ranks(lookup_in(variables)); };
  EXPECT_EQ(ranks_of({}), 1);
  EXPECT_EQ(ranks_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_NTASKS", "8"}}), 4);
  EXPECT_EQ(ranks_of({{"SLURM_NTASKS", "8"}}), 8);
  EXPECT_EQ(ranks_of({{"SLURM_NTASKS", "4294967297"}}), 2147483647) << "not 1, its last 32 bits";
  EXPECT_EQ(rank_of({}), 0);
  EXPECT_EQ(rank_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_PROCID", "3"}}), 0);
  EXPECT_EQ(rank_of({{"SLURM_PROCID", "3"}}), 3);
}

TEST(Environment, Bf16IsEmulatedOnlyWhenAskedFor) {
  EXPECT_EQ(flags_of({}).bf16, Bf16Request::kBest);
  EXPECT_EQ(flags_of({{"MOELOOM_BF16", " "}}).bf16, Bf16Request::kBest);
  EXPECT_EQ(flags_of({{"MOELOOM_BF16", " Emulate"}}).bf16, Bf16Request::kEmulate);
  EXPECT_EQ(flags_of({{"MOELOOM_BF16", "pairs"}}).bf16, Bf16Request::kPairs);
}

TEST(Environment, NodesArePretendedOnlyWhenAskedFor) {
  EXPECT_EQ(flags_of({}).pretended_nodes, 0);
  EXPECT_EQ(flags_of({{"MOELOOM_PRETEND_NODES", " 3 "}}).pretended_nodes, 3);
  EXPECT_EQ(complaints({{"MOELOOM_PRETEND_NODES", "4,2"}}),
            std::vector<std::string>{"MOELOOM_PRETEND_NODES = \"4,2\" is not valid; valid: 1 to 1024"});
}

TEST(Environment, EveryValueThatIsNotValidIsListed) {
  EXPECT_EQ(complaints({{"MOELOOM_PATCH", "2"},
                        {"MOELOOM_GMM_PATCH", "maybe"},
                        {"TWINKLE_NPU_GMM_PATCH", "auto"},
                        {"MOELOOM_BF16", "1"},
                        {"MOELOOM_LOG", "loud"}}),
            (std::vector<std::string>{
                "MOELOOM_PATCH = \"2\" is not valid; valid: 1, true, on, yes, 0, false, off, no",
                "MOELOOM_GMM_PATCH = \"maybe\" is not valid; valid: 0, 1, auto, force",
                "TWINKLE_NPU_GMM_PATCH = \"auto\" is not valid; valid: 1, true, on, yes, 0, false, off, no",
                "MOELOOM_BF16 = \"1\" is not valid; valid: emulate, pairs",
                "MOELOOM_LOG = \"loud\" is not valid; valid: debug, info, warn, error"}));
}

TEST(Environment, ANameAndItsAliasMustAgree) {
  EXPECT_EQ(flags_of({{"MOELOOM_PATCH", "off"}, {"TWINKLE_NPU_PATCH", "0"}}).patch, false);
  EXPECT_EQ(flags_of({{"MOELOOM_GMM_PATCH", "1"}, {"TWINKLE_NPU_GMM_PATCH", "yes"}}).gmm,
            GmmRequest::kUpstreamRule);
  EXPECT_EQ(
      complaints({{"MOELOOM_PATCH", "1"}, {"TWINKLE_NPU_PATCH", "0"}}),
      std::vector<std::string>{"MOELOOM_PATCH and its alias TWINKLE_NPU_PATCH disagree (MOELOOM_PATCH=1, "
                               "TWINKLE_NPU_PATCH=0); unset one of them"});
  EXPECT_EQ(complaints({{"MOELOOM_GMM_PATCH", "auto"}, {"TWINKLE_NPU_GMM_PATCH", "1"}}).size(), 1u);
}

TEST(Environment, WhatWasGivenIsKeptForTheLog) {
  EXPECT_EQ(flags_of({{"MOELOOM_LOG", "Debug"}, {"TWINKLE_NPU_GMM_PATCH", "1"}}).given,
            std::vector<std::string>{"TWINKLE_NPU_GMM_PATCH=1"})
      << "ranks may have other levels";
}

TEST(Environment, WhoSwitchesIsKept) {
  EXPECT_EQ(flags_of({{"TWINKLE_NPU_GMM_PATCH", "1"}}).why_gmm, "TWINKLE_NPU_GMM_PATCH=1");
  EXPECT_EQ(flags_of({{"MOELOOM_GMM_PATCH", "force"}, {"MOELOOM_PATCH", "0"}}).why_patch, "MOELOOM_PATCH=0");
}

TEST(Environment, SlurmListsTheRanksOfEachHost) {
  const auto ranks_of = [](const char* node, const char* list) {
    return launcher_node_ranks(lookup_in({{"SLURM_NODEID", node}, {"SLURM_STEP_TASKS_PER_NODE", list}}));
  };
  for (const char* node : {"0", "1", "2"}) EXPECT_EQ(ranks_of(node, "2(x3),5"), 2) << node;
  EXPECT_EQ(ranks_of("3", "2(x3),5"), 5);
  EXPECT_EQ(ranks_of("4", "2(x3),5"), 1) << "a node that is not listed";
  EXPECT_EQ(launcher_node_ranks(
                lookup_in({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2"}})),
            4);
}

}  // namespace
}  // namespace moeloom
