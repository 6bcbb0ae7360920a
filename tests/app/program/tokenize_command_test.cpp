// moeloom tokenize: ids to files and lines, as the library gives them; ended and gone on with.
#include "io/token_file_writer.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/text/tokenizer.hpp"

#include <tuple>

#include "program/program_testing.hpp"
#include "support/files.hpp"
#include "support/golden.hpp"

namespace moeloom::testing {
namespace {

const std::filesystem::path& tokenizer_folder() {
  static const std::filesystem::path folder =
      source_root() / "tests" / "data" / "text" / "tokenizers" / "tiny-bytelevel-qwen2";
  return folder;
}

std::string tokenize(const std::string& words) {
  return alone() + "tokenize --model " + tokenizer_folder().string() + " " + words;
}

class TokenizeCommand : public ::testing::Test {
 protected:
  std::vector<std::int32_t> written(TokenFormat format) const {
    const TokenSource source(folder_ / "data.bin", format);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
    source.read(0, source.size(), ids.data());
    return ids;
  }
  std::vector<std::int32_t> expected(const std::vector<std::string>& texts) const {
    std::vector<std::int32_t> all;
    for (const std::string& text : texts)
      for (const std::uint32_t id : tokenizer_.encode(text, false))
        all.push_back(static_cast<std::int32_t>(id));
    return all;
  }
  /// NAME.gz.
  void write_packed(const std::string& name, const std::string& text) const {
    write_bytes(folder_ / name, text);
    ASSERT_EQ(shell("gzip " + (folder_ / name).string()).exit_code, 0);
  }
  std::string out() const { return " --out " + (folder_ / "data.bin").string(); }
  std::string in(const std::string& name) const { return "--in " + (folder_ / name).string(); }

  TemporaryFolder folder_;
  Tokenizer tokenizer_ = Tokenizer::load(tokenizer_folder() / "tokenizer.json");
};

/// More than one batch of the command.
std::string long_text() {
  std::string text;
  for (Index i = 0; text.size() < (std::size_t{5} << 20); ++i)
    text += "line " + std::to_string(i * 7919 % 1000) + " of it\n";
  return text;
}

TEST_F(TokenizeCommand, WritesDocumentsOfTextJsonlAndFolders) {
  std::filesystem::create_directories(folder_ / "more");
  write_bytes(folder_ / "a.txt", "In the beginning\n");
  write_bytes(folder_ / "more" / "b.jsonl",
              "{\"text\": \"God created\"}\n\n{\"id\": 1, \"text\": \"h\\u00e9aven\"}\n");
  write_bytes(folder_ / "more" / "c.txt", "and the earth");
  const Outcome run = shell(tokenize(in("a.txt") + "," + (folder_ / "more").string() + out()));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("tokens of 4 documents"), std::string::npos) << run.output;
  EXPECT_EQ(written(TokenFormat::kMegatron),
            expected({"In the beginning\n", "God created", "h\u00e9aven", "and the earth"}));
  EXPECT_NE(shell(tokenize(in("a.txt") + out())).output.find("is there; remove it, or give --overwrite"),
            std::string::npos);
  const Outcome raw = shell(
      tokenize(in("more/c.txt") + out() + " --overwrite true --format raw --end-token '<|endoftext|>'"));
  ASSERT_EQ(raw.exit_code, 0) << raw.output;
  EXPECT_EQ(written(TokenFormat::kU32), expected({"and the earth<|endoftext|>"}));
}

/// NAME and NAME.bin have one index; --overwrite is a word for --out alone.
TEST_F(TokenizeCommand, LeavesTheIndexOfOtherTokensAlone) {
  write_bytes(folder_ / "a.txt", "In the beginning");
  ASSERT_EQ(shell(tokenize(in("a.txt") + out())).exit_code, 0);
  const std::string data = (folder_ / "data").string();
  const auto refused = [&](const std::string& words, const std::string& said) {
    const Outcome run = shell(tokenize(in("a.txt") + " " + words));
    EXPECT_EQ(run.exit_code, kFailedExitCode) << words << run.output;
    EXPECT_NE(run.output.find(said), std::string::npos) << words << run.output;
  };
  const std::string as_raw = "--out " + data + " --overwrite true --format raw";
  refused(as_raw, data + ".idx would be removed, and is that of " + data + ".bin, which is there");
  EXPECT_EQ(written(TokenFormat::kMegatron), expected({"In the beginning"}));

  std::filesystem::remove(folder_ / "data.bin");
  refused(out(), "data.idx is there, and not the tokens whose index it would be, ");
  EXPECT_EQ(names_in(folder_.path()), (std::vector<std::string>{"a.txt", "data.idx"}));
  ASSERT_EQ(shell(tokenize(in("a.txt") + out() + " --overwrite true")).exit_code, 0);

  std::filesystem::remove(folder_ / "data.idx");  // raw ids
  const Outcome raw = shell(tokenize(in("a.txt") + " " + as_raw));
  EXPECT_EQ(raw.exit_code, 0) << raw.output;
}

/// What finish() leaves that a power cut ends between its two names.
TEST_F(TokenizeCommand, GoesOnWhereOnlyTheIndexHasItsName) {
  write_bytes(folder_ / "data", "In the beginning");
  ASSERT_EQ(shell(tokenize(in("data") + out())).exit_code, 0);
  std::filesystem::rename(folder_ / "data.bin", folder_ / "data.bin.partial");
  const Outcome again = shell(tokenize(in("data") + out()));
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(written(TokenFormat::kMegatron), expected({"In the beginning"}));
}

TEST_F(TokenizeCommand, IsRefusedWhereAFolderHasTheNameOrAnotherProcessWrites) {
  write_bytes(folder_ / "a.txt", "In the beginning");
  std::filesystem::create_directories(folder_ / "folder.bin" / "full");
  const Outcome to_folder =
      shell(tokenize(in("a.txt") + " --overwrite true --out " + (folder_ / "folder.bin").string()));
  EXPECT_EQ(to_folder.exit_code, kFailedExitCode) << to_folder.output;
  EXPECT_NE(to_folder.output.find("folder.bin is a folder"), std::string::npos) << to_folder.output;
  EXPECT_EQ(names_in(folder_.path()), (std::vector<std::string>{"a.txt", "folder.bin"}));
  {
    const OutputLock lock = tokens_lock(folder_ / "data.bin");
    const Outcome second = shell(tokenize(in("a.txt") + out() + " --overwrite true"));
    EXPECT_EQ(second.exit_code, kFailedExitCode) << second.output;
    EXPECT_NE(second.output.find("data.bin is being written by another process"), std::string::npos)
        << second.output;
  }
  EXPECT_EQ(shell(tokenize(in("a.txt") + out())).exit_code, 0);
}

/// The folder's template says what a conversation is; a row's columns that nobody reads are named.
TEST_F(TokenizeCommand, WritesConversationsByTheTemplateAndItsSwitches) {
  std::filesystem::create_directories(folder_ / "model");
  std::filesystem::copy_file(tokenizer_folder() / "tokenizer.json", folder_ / "model" / "tokenizer.json");
  write_bytes(folder_ / "model" / "chat_template.jinja",
              "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ mark }}\n{% endfor %}");
  write_bytes(
      folder_ / "chats.jsonl",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"God\"}, {\"role\": \"assistant\", \"content\": "
      "\"earth\"}], \"url\": \"x\"}\n{\"text\": \"God created\"}\n");
  const std::string words =
      alone() + "tokenize --model " + (folder_ / "model").string() + " " + in("chats.jsonl");
  const Outcome run = shell(words + " --template mark=! --end-token '<|endoftext|>'" + out());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("not read: url"), std::string::npos) << run.output;
  EXPECT_EQ(written(TokenFormat::kMegatron),
            expected({"user: God!\nassistant: earth!\n<|endoftext|>", "God created<|endoftext|>"}));
  std::filesystem::remove(folder_ / "model" / "chat_template.jinja");
  const Outcome bare = shell(words + " --overwrite true" + out());
  EXPECT_NE(bare.exit_code, 0);
  EXPECT_NE(bare.output.find("chats.jsonl:1: a conversation needs a chat template"), std::string::npos)
      << bare.output;
}

/// A file of ids has no mask, and an end for each document.
TEST_F(TokenizeCommand, TakesRowsThatSayMoreThanAFileOfIdsCan) {
  write_bytes(folder_ / "a.jsonl",
              "{\"id\": NaN, \"text\": \"\"}\n{\"prompt\": \"God \", \"completion\": \"created\"}\n");
  const Outcome run = shell(tokenize(in("a.jsonl") + " --end-token '<|endoftext|>'" + out()));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(written(TokenFormat::kMegatron), expected({"<|endoftext|>God created<|endoftext|>"}));
}

/// As train reads it: a name has one meaning.
TEST_F(TokenizeCommand, AnNdjsonHoldsADocumentALineToo) {
  write_bytes(folder_ / "a.ndjson", "{\"text\": \"God created\"}\n{\"text\": \"the earth\"}\n");
  const Outcome run = shell(tokenize(in("a.ndjson") + out()));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("tokens of 2 documents"), std::string::npos) << run.output;
  EXPECT_EQ(written(TokenFormat::kMegatron), expected({"God created", "the earth"}));
}

TEST_F(TokenizeCommand, ALongTextGivesTheIdsOfTheWholeOnAnyThreads) {
  const std::string text = long_text();
  write_bytes(folder_ / "long.txt", text);
  for (const char* threads : {"1", "3"}) {
    const Outcome run = shell(tokenize(in("long.txt") + out() + " --overwrite true --threads " + threads));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    EXPECT_NE(run.output.find("of 1 documents"), std::string::npos) << run.output;
    EXPECT_TRUE(written(TokenFormat::kMegatron) == expected({text}));
  }
}

TEST_F(TokenizeCommand, NamesABrokenLineAndGoesOnFromThereOnceItIsMended) {
  const std::string text = long_text();
  write_packed("a.txt", text);  // a place within it counts bytes of the text
  write_bytes(folder_ / "b.jsonl", "{\"text\": \"good\"}\n{\"test\": \"bad!\"}\n");
  const std::string files = in("a.txt.gz") + "," + (folder_ / "b.jsonl").string() + out();
  const auto progress = folder_ / "data.bin.progress.json";
  const Outcome broken = shell(tokenize(files));
  EXPECT_EQ(broken.exit_code, kDataExitCode) << broken.output;
  EXPECT_NE(broken.output.find("b.jsonl:2: expected one of the keys"), std::string::npos) << broken.output;
  write_bytes(folder_ / "b.jsonl", "{\"text\": \"good\"}\n{\"text\": \"bad!\"}\n");
  EXPECT_NE(shell(tokenize(files + " --special true")).output.find("is of another run"), std::string::npos);
  const std::string whole = testing::read_bytes(progress);
  for (const auto& [key, count, exit_code, said] :
       std::vector<std::tuple<const char*, Index, int, std::string>>{
           {"file", -1, kDataExitCode, progress.string() + ": has file = -1"},
           {"file", 3, kFailedExitCode, "is of another run"},
           {"file", 2, kFailedExitCode, "is of another run"},  // none, and yet an offset
           {"offset", Index{1} << 40, kDataExitCode, "a.txt.gz: its text has "}}) {
    Document changed = Document::parse(whole, "progress");
    changed.set(key, count);
    changed.write(progress);
    const Outcome run = shell(testing::within_time() + tokenize(files));
    EXPECT_EQ(run.exit_code, exit_code) << run.output;
    EXPECT_NE(run.output.find(said), std::string::npos) << run.output;
  }
  write_bytes(progress, whole);
  const Outcome mended = shell(tokenize(files));
  ASSERT_EQ(mended.exit_code, 0) << mended.output;
  EXPECT_NE(mended.output.find("resumed="), std::string::npos) << mended.output;
  EXPECT_NE(mended.output.find("of 3 documents"), std::string::npos) << mended.output;
  EXPECT_EQ(mended.output.find(", -"), std::string::npos) << "no speed is negative\n" << mended.output;
  EXPECT_TRUE(written(TokenFormat::kMegatron) == expected({text, "good", "bad!"}));
  EXPECT_EQ(names_in(folder_.path()),
            (std::vector<std::string>{"a.txt.gz", "b.jsonl", "data.bin", "data.idx"}));
}

/// Of which a batch ends with the last part.
TEST_F(TokenizeCommand, APackedTextEndsWhereItsBytesDo) {
  const std::string text = long_text().substr(0, std::size_t{9} << 19);
  write_packed("a.txt", text);
  const Outcome run = shell(tokenize(in("a.txt.gz") + " --end-token '<|endoftext|>'" + out()));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_TRUE(written(TokenFormat::kMegatron) == expected({text + "<|endoftext|>"}));
}

TEST_F(TokenizeCommand, PrintsIdsAndTheWayBack) {
  const std::string program =
      kProgram + " tokenize --model " + (tokenizer_folder() / "tokenizer.json").string();
  EXPECT_EQ(shell("printf 'In the beginning\\n\\nGod\\n' | " + program + " --ids | " + program + " --decode")
                .output,
            "In the beginning\n\nGod\n");
  const Outcome wrong = shell("echo 12 x | " + program + " --decode");
  EXPECT_NE(wrong.output.find("standard input:1: expected token ids"), std::string::npos) << wrong.output;
  EXPECT_NE(shell(tokenize("--ids --decode")).output.find("two ways"), std::string::npos);
  EXPECT_NE(shell(tokenize("")).output.find("--in is needed"), std::string::npos);
}

}  // namespace
}  // namespace moeloom::testing
