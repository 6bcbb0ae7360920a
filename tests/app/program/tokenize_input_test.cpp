// What tokenize takes for its input, and what it refuses beside it.
#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "cli/parse.hpp"
#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom::testing {
namespace {

namespace fs = std::filesystem;

class TokenizeInput : public ::testing::Test {
 protected:
  Outcome tokenize(const std::string& words) const {
    const fs::path model = fs::path(MOELOOM_SOURCE_DIR) / "tests/data/text/tokenizers/tiny-bytelevel-qwen2";
    return shell("cd " + folder_.path().string() + " && " + alone() + "tokenize --model " + model.string() +
                 " " + words);
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizeInput, HoldsSomething) {
  const Outcome none = tokenize("--in '' --out o.bin");
  EXPECT_EQ(none.exit_code, kFailedExitCode) << none.output;
  EXPECT_EQ(count_of(none.output, "--in needs names of files or folders"), 1u) << none.output;
  fs::create_directory(folder_ / "empty");
  for (const char* rest : {"--out o.bin", "--ids true"}) {
    const Outcome empty = tokenize(std::string("--in empty ") + rest);
    EXPECT_EQ(empty.exit_code, kDataExitCode) << empty.output;
    EXPECT_EQ(count_of(empty.output, "empty: expected files to read, found none"), 1u) << empty.output;
  }
  EXPECT_FALSE(fs::exists(folder_ / "o.bin"));
}

TEST_F(TokenizeInput, ThatCannotBeReadIsAnError) {
  const Outcome folder = tokenize("--ids true < /");
  EXPECT_EQ(folder.exit_code, kDataExitCode) << folder.output;
  EXPECT_EQ(count_of(folder.output, "cannot read standard input: Is a directory"), 1u) << folder.output;
  EXPECT_EQ(tokenize("--ids true < /dev/null").exit_code, 0);
}

TEST_F(TokenizeInput, LeavesOutWhatItWritesInAFolderThatItReads) {
  fs::create_directory(folder_ / "d");
  write_bytes(folder_ / "d" / "a.txt", "In the beginning\n");
  write_bytes(folder_ / "d" / "o.bin.partial", "of a call that was ended");
  const Outcome first = tokenize("--in d --out d/o.bin");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  EXPECT_EQ(count_of(first.output, "tokens of 1 documents"), 1u) << first.output;
  const std::string ids = read_bytes(folder_ / "d" / "o.bin");
  const Outcome again = tokenize("--in d --out d/o.bin --overwrite true");
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(count_of(again.output, "tokens of 1 documents"), 1u) << again.output;
  EXPECT_EQ(read_bytes(folder_ / "d" / "o.bin"), ids);
}

TEST_F(TokenizeInput, IsNotReplacedByTheOutput) {
  for (const auto& [in, out] : {std::pair("j.bin", "j.bin"), {"k.idx", "k.bin"}}) {
    write_bytes(folder_ / in, "In the beginning\n");
    const Outcome refused = tokenize(std::string("--in ") + in + " --out " + out + " --overwrite true");
    EXPECT_EQ(refused.exit_code, kFailedExitCode) << refused.output;
    EXPECT_EQ(count_of(refused.output, std::string("--out ") + in + " would be written over what --in reads"),
              1u)
        << refused.output;
    EXPECT_EQ(read_bytes(folder_ / in), "In the beginning\n");
  }
}

TEST_F(TokenizeInput, PrintedTakesNoOptionOfFiles) {
  for (const char* way : {"--ids", "--decode"})
    for (const std::vector<const char*>& words :
         {std::vector{"--end-token", "<|endoftext|>"}, {"--format", "raw"}, {"--overwrite", "true"}}) {
      std::vector<const char*> all = {"--model", "m", way, "true"};
      all.insert(all.end(), words.begin(), words.end());
      try {
        parse(parse_tokenize_options, all);
        ADD_FAILURE() << words.front() << " is not refused";
      } catch (const ConfigError& error) {
        EXPECT_NE(
            with_flag_names(error.what()).find(std::string(words.front()) + " cannot be had with " + way),
            std::string::npos)
            << error.what();
      }
    }
}

}  // namespace
}  // namespace moeloom::testing
