#include "model/hf/weights/word_files.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

TEST(WordFiles, AreThoseThatCarryAModelsWordsInTheirOrder) {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder / "from" / "additional_chat_templates");
  for (const char* name :
       {"tokenizer.json", "chat_template.jinja", "generation_config.json", "config.json", "model.safetensors",
        "additional_chat_templates/rag.jinja", "additional_chat_templates/notes.txt"})
    replace_file(folder / "from" / name, std::string("bytes of ") + name);
  const WordFiles files = read_word_files(folder / "from");
  std::vector<std::string> names;
  for (const WordFile& file : files) names.push_back(file.name.string());
  EXPECT_EQ(names, (std::vector<std::string>{"additional_chat_templates/rag.jinja", "chat_template.jinja",
                                             "generation_config.json", "tokenizer.json"}));
  fs::remove_all(folder / "from");  // as a run removes the checkpoint that it began with
  fs::create_directories(folder / "to");
  write_word_files(files, folder / "to");
  for (const std::string& name : names) EXPECT_EQ(read_text_file(folder / "to" / name), "bytes of " + name);
}

TEST(WordFiles, ALinkOutOfTheFolderIsRefusedButForTheHubsCache) {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder / "stranger");
  replace_file(folder / "secret", "mine");
  fs::create_symlink(folder / "secret", folder / "stranger" / "tokenizer.json");
  EXPECT_THROW(read_word_files(folder / "stranger"), IoError);
  const fs::path snapshot = folder / "hub" / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(folder / "hub" / "blobs");
  replace_file(folder / "hub" / "blobs" / "0123", "theirs");
  fs::create_symlink("../../blobs/0123", snapshot / "tokenizer.json");
  const WordFiles files = read_word_files(snapshot);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files.front().bytes, "theirs");
}

}  // namespace
}  // namespace moeloom
