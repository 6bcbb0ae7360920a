// Exit codes of the table in launch/README.md, where the cause is neither an option nor a damaged model.
#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom::testing {
namespace {

namespace fs = std::filesystem;

class ExitCode : public ProgramTest {};

TEST_F(ExitCode, OfAMissingFileOfSettingsIsThatOfAMissingFile) {
  const Outcome missing = shell(alone() + "train --config " + path("none.conf"));
  EXPECT_EQ(missing.exit_code, kDataExitCode) << missing.output;
  const Outcome wrong = shell(alone() + "train --lr x --config " + path("none.conf"));
  EXPECT_EQ(wrong.exit_code, kFailedExitCode) << wrong.output;
}

TEST_F(ExitCode, OfWhatTheSystemRefusesIsThatOfFilesInOurWords) {
  fs::create_symlink(path("loop"), path("loop"));
  write_words_and_chats();
  const Outcome loop = shell(alone() + "tokenize --model " + path("words") + " --out " + path("o.bin") +
                             " --in " + path("loop"));
  EXPECT_EQ(loop.exit_code, kDataExitCode) << loop.output;
  EXPECT_EQ(loop.output, "[error] cannot use " + path("loop") + ": Too many levels of symbolic links\n");
}

TEST_F(ExitCode, OfHelpThatNobodyTakesIsThatOfTheDisk) {
  for (const char* words : {"--help", "--version", "train --help"}) {
    const Outcome full = shell(alone() + words + " > /dev/full");
    EXPECT_EQ(full.exit_code, kDiskExitCode) << words << full.output;
    EXPECT_EQ(count_of(full.output, "cannot write the standard output"), 1u) << full.output;
  }
}

TEST_F(ExitCode, OfKernelsForRanksThatEpDoesNotDivideIsThatOfAWrongOption) {
  const Outcome refused = shell(alone() + "kernels --ranks 2 --ep 4");
  EXPECT_EQ(refused.exit_code, kFailedExitCode) << refused.output;
  EXPECT_EQ(count_of(refused.output, "ep = 4 does not divide the 2 ranks"), 1u) << refused.output;
  const Outcome as_ep = shell(alone() + "kernels --ep 4");
  EXPECT_EQ(as_ep.exit_code, 0);
  EXPECT_EQ(count_of(as_ep.output, "kernels for dp=1 ep=4"), 1u) << as_ep.output;
}

TEST_F(ExitCode, OfARunWhoseSampleNobodyReadsIsThatOfTheRun) {
  const std::string run = train(1, "--steps 2 --export " + path("export")).substr(on_ranks(1).size());
  const Outcome unread = shell("{ " + alone() + run + "; echo code=$? >&2; } | true");
  EXPECT_EQ(count_of(unread.output, "code=0\n"), 1u) << unread.output;
  EXPECT_TRUE(fs::exists(path("export/model.safetensors"))) << unread.output;
}

}  // namespace
}  // namespace moeloom::testing
