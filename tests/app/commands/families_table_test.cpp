#include "commands/families_table.hpp"

#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

const Family& family(const std::string& type) {
  return *find_family(type);
}

TEST(FamiliesTable, SaysTheParts) {
  EXPECT_EQ(family_row(family("gpt_oss")),
            (std::vector<std::string>{"`gpt_oss`", "grouped-query attention, windows, sinks",
                                      "softmax of the chosen, biases", "[E, D, 2F], gate and up in turn"}));
  EXPECT_EQ(
      family_row(family("deepseek_v3")),
      (std::vector<std::string>{"`deepseek_v3`", "latent attention",
                                "sigmoid, groups, bias of the choice, shared expert", "a tensor each"}));
  EXPECT_EQ(family_row(family("llama"))[2], "");
}

TEST(FamiliesTable, HasARowOfItsOwnForEachFamilyThatRuns) {
  std::set<std::string> names;
  for (const Family& each : families()) names.insert(family_row(each).front());
  EXPECT_EQ(names.size(), families().size());
}

}  // namespace
}  // namespace moeloom
