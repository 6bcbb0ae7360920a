#include "moeloom/base/errors.hpp"
#include "moeloom/base/version.hpp"

#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "cli/parse.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::parse;

TEST(CommandOptions, GenerateTakesAFolderWithOrWithoutItsName) {
  EXPECT_EQ(parse(parse_generate_options, {"runs/a", "--tokens", "5"}).ask.model, "runs/a");
  const auto options =
      parse(parse_generate_options, {"--model", "runs/a", "--top-k", "3", "--temperature", "0"});
  EXPECT_EQ(options.ask.model, "runs/a");
  EXPECT_EQ(options.answer.sampling.top_k, 3);
  EXPECT_EQ(options.answer.sampling.temperature, 0);
}

TEST(CommandOptions, WhatIsMissingOrOutOfRangeIsListed) {
  EXPECT_THROW(parse(parse_generate_options, {}), ConfigError);
  EXPECT_THROW(parse(parse_generate_options, {"a", "b"}), ConfigError);
  EXPECT_THROW(parse(parse_generate_options, {"a", "--temperature", "-1"}), ConfigError);
  EXPECT_THROW(parse(parse_generate_options, {"a", "--prompt", ""}), ConfigError);
  EXPECT_THROW(parse(parse_generate_options, {"a", "--threads", "100000"}), ConfigError);
  EXPECT_THROW(parse(parse_generate_options, {"a", "--prompt", "x", "--prompt-ids", "1"}), ConfigError);
  EXPECT_THROW(parse(parse_kernels_options, {"--threads", "100000"}), ConfigError);
  EXPECT_THROW(parse(parse_kernels_options, {"--kernels", "fused_mlp"}), ConfigError);
  EXPECT_THROW(parse(parse_inspect_options, {}), ConfigError);
  EXPECT_THROW(parse(parse_inspect_options, {"a", "--ranks", "0"}), ConfigError);
  EXPECT_THROW(parse(parse_kernels_options, {"--accumulate", "0"}), ConfigError);
  EXPECT_THROW(parse(parse_kernels_options, {"--model", "a", "--layers", "2"}), ConfigError);
}

TEST(CommandOptions, WhatCannotBeReadIsListedFirstAndThenEveryOtherMistake) {
  const auto complaints = [](const std::vector<const char*>& words) {
    try {
      parse(parse_generate_options, words);
    } catch (const ConfigError& error) {
      std::vector<std::string> shown;
      for (const std::string& violation : error.violations()) shown.push_back(with_flag_names(violation));
      return shown;
    }
    return std::vector<std::string>();
  };
  EXPECT_EQ(complaints({"--tokens", "0", "--top-k", "x", "--token", "--ep=y"}),
            (std::vector<std::string>{"unknown option \"--token\"; did you mean --tokens?",
                                      "--ep = \"y\": expected a whole number",
                                      "--top-k = \"x\": expected a whole number"}));
  EXPECT_EQ(complaints({"--tokens", "0", "--ep", "0"}),
            (std::vector<std::string>{"--model DIR is needed", "ep = 0 must be at least 1",
                                      "tokens = 0 must be at least 1"}));
}

TEST(CommandOptions, GenerateTakesIdsInsteadOfAPrompt) {
  EXPECT_EQ(parse(parse_generate_options, {"a", "--prompt-ids", "1, 2,30"}).prompt_ids,
            (std::vector<Index>{1, 2, 30}));
}

TEST(CommandOptions, KernelsTakesAShapeAndAMesh) {
  const auto options =
      parse(parse_kernels_options, {"--experts", "4", "--ranks", "8", "--ep", "2", "--gmm-rule", "upstream"});
  EXPECT_EQ(options.model.shape.num_experts, 4);
  EXPECT_EQ(options.model.shape_given, std::vector<std::string>{"experts"});
  EXPECT_EQ(options.ranks, 8);
  EXPECT_EQ(options.kernels.gmm_rule, GmmRule::kUpstream);
}

TEST(CommandOptions, ConvertTakesTwoFoldersAndWhatIsToBeDone) {
  const auto upcycling =
      parse(parse_convert_options, {"dense", "moe", "--experts", "4", "--top-k", "1", "--noise", "0.1"});
  EXPECT_EQ(upcycling.source, "dense");
  EXPECT_EQ(upcycling.target, "moe");
  ASSERT_TRUE(upcycling.upcycling);
  EXPECT_EQ(upcycling.upcycling->experts, 4);
  EXPECT_EQ(upcycling.upcycling->noise, 0.1);
  const auto files = parse(parse_convert_options, {"a", "b", "--layout", "stacked", "--shard-size", "2GB"});
  EXPECT_FALSE(files.upcycling);
  EXPECT_EQ(files.layout, ExpertFiles::kStacked);
  EXPECT_EQ(files.shard_bytes, 2'000'000'000);
  EXPECT_FALSE(files.dtype);
}

TEST(CommandOptions, ConvertRefusesWhatWouldHaveNoEffect) {
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"a"},
                                             {"a", "b"},
                                             {"a", "b", "c", "--layout", "list"},
                                             {"a", "b", "--layout", "list", "--top-k", "2"},
                                             {"a", "b", "--layout", "heap"},
                                             {"a", "b", "--shard-size", "0"},
                                             {"a", "b", "--export-dtype", "int8"}})
    EXPECT_THROW(parse(parse_convert_options, words), ConfigError) << words.size() << words.back();
}

TEST(CommandOptions, WhatBelongsToAnotherOptionOrExcludesItSaysSo) {
  const auto refusal = [](auto parser, const std::vector<const char*>& words) -> std::string {
    try {
      parse(parser, words);
    } catch (const ConfigError& error) {
      return with_flag_names(error.what());
    }
    return "";
  };
  const auto says = [&](auto parser, const std::vector<const char*>& words, const std::string& part) {
    const std::string found = refusal(parser, words);
    EXPECT_NE(found.find(part), std::string::npos) << part << "\n" << found;
  };
  says(parse_convert_options, {"a", "b", "--layout", "list", "--top-k", "2"},
       "--top-k is that of --experts N, which is not given; remove it");
  EXPECT_EQ(refusal(parse_convert_options, {"a", "b", "--experts", "8", "--top-k", "2"}), "")
      << "said, though it is the default";
  says(parse_generate_options, {"a", "--prompts", "f", "--prompt-ids", "1"},
       "--prompt-ids cannot be had with --prompts");
  says(parse_generate_options, {"a", "--prompt", "0", "--prompts", "f"},
       "--prompts cannot be had with --prompt:");
  says(parse_generate_options, {"a", "--prompts", "f", "--prompt-ids", "0"},
       "--prompt-ids cannot be had with --prompts");
  says(parse_generate_options, {"a", "--prompt-ids", "0", "--stop", "0"},
       "--prompt-ids cannot be had with --stop");
  EXPECT_EQ(refusal(parse_generate_options, {"a", "--prompt", "The ", "--prompts", "f"}), "")
      << "as it is by default";
  says(parse_generate_options, {"a", "--prompts", "f", "--record-routing", "r"},
       "--prompts cannot be had with --record-routing");
  says(parse_generate_options, {"a", "--prompt-ids", "1", "--stop", "x"},
       "--prompt-ids cannot be had with --stop");
  says(parse_tokenize_options, {"--model", "m", "--ids", "--decode"}, "--ids cannot be had with --decode");
  says(parse_tokenize_options, {"--model", "m", "--ids", "--out", "x"}, "--out cannot be had with --ids");
  says(parse_tokenize_options, {"--model", "m", "--in", "a", "--out", "x"},
       "--out x: who reads Megatron's tokens takes x.bin; write that, or --format raw");
  EXPECT_EQ(refusal(parse_tokenize_options, {"--model", "m", "--in", "a", "--out", "x", "--format", "raw"}),
            "");
  EXPECT_EQ(refusal(parse_tokenize_options, {"--model", "m", "--ids", "no", "--decode", "true"}), "");
}

TEST(CommandOptions, EachCommandHasHelp) {
  EXPECT_NE(convert_help().text.find("--shard-size BYTES (=5GB)"), std::string::npos) << convert_help().text;
  EXPECT_NE(generate_help().text.find("--temperature"), std::string::npos);
  EXPECT_NE(inspect_help().text.find("--ranks"), std::string::npos);
  EXPECT_NE(kernels_help().text.find("--gmm-budget BYTES (=4GiB)"), std::string::npos);
  for (const char* part : {"train", "generate", "inspect", "convert", "kernels", "MOELOOM_GMM_PATCH",
                           "MOELOOM_LOG", "OMP_NUM_THREADS"})
    EXPECT_NE(moeloom_help().find(part), std::string::npos) << part;
}

TEST(CommandOptions, TheVersionIsTheProjects) {
  const std::string project =
      testing::read_bytes(std::filesystem::path(MOELOOM_SOURCE_DIR) / "CMakeLists.txt");
  const std::string version = moeloom_version().substr(std::string("moeloom ").size());
  EXPECT_NE(project.find("VERSION " + version.substr(0, version.find('\n')) + " "), std::string::npos);
  EXPECT_NE(version.find("\nlevel " + std::string(library_level()) + "\n"), std::string::npos);
}

}  // namespace
}  // namespace moeloom
