#include "cli/command_line.hpp"
#include "cli/options.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

bool asks(Help (*help)(), std::vector<const char*> words) {
  words.insert(words.begin(), "command");
  return help_requested(static_cast<int>(words.size()), words.data(), help);
}

TEST(HelpRequested, ByAWordThatNoOptionTakesAsItsValue) {
  EXPECT_TRUE(asks(generate_help, {"-h"}));
  EXPECT_TRUE(asks(generate_help, {"runs/a", "--tokens", "3", "--help"}));
  EXPECT_TRUE(asks(generate_help, {"--ignore-end", "--help"})) << "a switch takes yes or no alone";
  EXPECT_TRUE(asks(generate_help, {"--prompt=a", "-h"}));
  EXPECT_FALSE(asks(generate_help, {"runs/a", "--prompt", "-h"}));
  EXPECT_FALSE(asks(chat_help, {"--message", "--help", "--model", "runs/a"}));
  EXPECT_FALSE(asks(generate_help, {"--prompt=-h"}));
  EXPECT_FALSE(asks(generate_help, {}));
  EXPECT_TRUE(asks(mesh_help, {"--slots", "2", "--", "--help"}));
}

TEST(HelpRequested, OfInspectNamesTheExitCodeOfDamage) {
  EXPECT_NE(inspect_help().text.find("65 if"), std::string::npos) << inspect_help().text;
}

}  // namespace
}  // namespace moeloom
