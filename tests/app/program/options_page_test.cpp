// launch/options.md is what the program's own --help says.
#include <fstream>
#include <iterator>

#include "program/program_testing.hpp"

namespace moeloom {
namespace {

using testing::kProgram;
using testing::Outcome;
using testing::shell;
using testing::within_time;

const std::string kOptionsWriter = MOELOOM_SOURCE_DIR "/launch/write-options.sh";
const std::string kOptionsPage = MOELOOM_SOURCE_DIR "/launch/options.md";

std::string committed_options() {
  std::ifstream file(kOptionsPage);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(OptionsPage, IsWhatHelpSays) {
  const Outcome written = shell(within_time() + kOptionsWriter + " " + kProgram + " -");
  ASSERT_EQ(written.exit_code, 0) << written.output;
  EXPECT_TRUE(written.output == committed_options())
      << kOptionsPage << " is stale; write it anew: " << kOptionsWriter << " " << kProgram;
}

TEST(OptionsPage, HoldsEveryCommandAndTheEnvironment) {
  const std::string page = committed_options();
  for (const char* command : {"train", "generate", "chat", "eval", "inspect", "convert", "tokenize", "report",
                              "kernels", "bench ep", "calibrate", "plan"})
    EXPECT_NE(page.find("\n## moeloom " + std::string(command) + "\n"), std::string::npos) << command;
  EXPECT_NE(page.find("MOELOOM_GMM_PATCH"), std::string::npos);
}

}  // namespace
}  // namespace moeloom
