#include "cli/rows/flag_words.hpp"

#include "cli/environment.hpp"
#include "cli/options.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(FlagWords, StandForFieldsWithValuesAndBesideFieldsWithout) {
  struct Case {
    const char* text;
    const char* expected;
  };
  const Case cases[] = {
      {"", ""},
      {"dispatcher = alltoall", "--dispatcher alltoall"},
      {"choose rebalance = off, or shard dense = off", "choose --rebalance off, or --shard-dense off"},
      {"over gmm budget = 24 MiB)", "over --gmm-budget 24 MiB)"},
      {"fused ops = off", "MOELOOM_FUSED_OPS=off"},
      {"fused ops are off", "fused ops (MOELOOM_FUSED_OPS) are off"},
      {"lower the learning rate, or leave such steps out: on nan = skip",
       "lower the learning rate (--lr), or leave such steps out: --on-nan skip"},
      {"wire dtype = bf16; compute dtype = fp32", "--wire-dtype bf16; --dtype fp32"},
      // Once a text, and not where the text names the flag anyway.
      {"the sequence length is a sequence length", "the sequence length (--seq-len) is a sequence length"},
      {"row budget has no rows; choose row budget = 0", "row budget has no rows; choose --row-budget 0"},
      {"--lr -1 is no learning rate", "--lr -1 is no learning rate"},
      // English, other words, and what a person wrote.
      {"the shared dispatcher cannot combine", "the shared dispatcher cannot combine"},
      {"learning rates, a my-learning rate", "learning rates, a my-learning rate"},
      {"/data/learning rate/x and \"learning rate\"", "/data/learning rate/x and \"learning rate\""},
      {"a.conf:4: dispatcher = \"x\": valid: shared", "a.conf:4: dispatcher = \"x\": valid: shared"},
      {"ep = 3 does not divide num_experts = 8", "ep = 3 does not divide num_experts = 8"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(with_flags(c.text), c.expected);
    EXPECT_EQ(with_flags(c.expected), c.expected) << "twice";
  }
}

TEST(FlagWords, AreFlagsOfTheProgram) {
  const std::string help = train_help().text + convert_help().text + generate_help().text;
  for (const FlagWord& word : flag_words()) {
    if (word.flag.starts_with("--")) {
      EXPECT_NE(help.find(std::string(word.flag) + " "), std::string::npos) << word.flag;
      continue;
    }
    const std::string variable(word.flag.substr(0, word.flag.find('=')));
    bool read = false;
    read_environment([&](const std::string& name) {
      read |= name == variable;
      return std::optional<std::string>();
    });
    EXPECT_TRUE(read) << variable;
  }
}

}  // namespace
}  // namespace moeloom
