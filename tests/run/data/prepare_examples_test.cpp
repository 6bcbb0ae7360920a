#include "data/prepare_examples.hpp"

#include "io/file_lock.hpp"
#include "moeloom/base/errors.hpp"

#include <future>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

class PrepareExamples : public ::testing::Test {
 protected:
  Prepared prepare(const std::string& name, PrepareSettings settings = {}) const {
    settings.cache = folder_ / "cache";
    return prepare_examples({folder_ / name}, RecordReader(bytes_, RowOptions(), {}, {}), settings, nullptr);
  }
  fs::path write(const std::string& name, const std::string& content) const {
    testing::write_bytes(folder_ / name, content);
    return folder_ / name;
  }

  testing::TemporaryFolder folder_;
  const ModelText bytes_;  // whose ids are bytes
};

TEST_F(PrepareExamples, MakesAFileOnceForEachContentAndRule) {
  write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"and two\"}\n");
  const Prepared made = prepare("a.jsonl");
  EXPECT_FALSE(made.found);
  EXPECT_EQ(ExampleFile(made.examples).tokens(), 10);
  EXPECT_TRUE(prepare("a.jsonl").found);
  EXPECT_FALSE(prepare("a.jsonl", {.skip_bad = 1}).found);
  write("a.jsonl", "{\"text\": \"others\"}\n");
  EXPECT_FALSE(prepare("a.jsonl").found);
}

TEST_F(PrepareExamples, TellsWidthsOfIdsApart) {
  write("a.u16", std::string("\1\0\2\0\3\0\4\0", 8));
  EXPECT_EQ(ExampleFile(prepare("a.u16").examples).tokens(), 4);
  const Prepared wide = prepare("a.u16", {.format = TokenFormat::kU32});
  EXPECT_FALSE(wide.found);
  EXPECT_EQ(ExampleFile(wide.examples).tokens(), 2);
  EXPECT_TRUE(prepare("a.u16", {.format = TokenFormat::kU16}).found) << "as its name says";
  write("negative.u32", "\xff\xff\xff\xff");
  EXPECT_NE(testing::message_of<IoError>([&] { prepare("negative.u32"); }).find("below 2^31"),
            std::string::npos);
}

TEST_F(PrepareExamples, ReadsRecordsByOneRule) {
  for (const char* name : {"a.jsonl", "a.ndjson", "a.JSONL", "a.jsonlines", "a.txt", "a"}) {
    const fs::path file = write(name, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    EXPECT_EQ(ExampleFile(prepare(name).examples).examples(), 2) << name;
    EXPECT_TRUE(holds_records(file, std::nullopt)) << name;
    EXPECT_FALSE(holds_records(file, TokenFormat::kText)) << "said otherwise";
    EXPECT_EQ(ExampleFile(prepare(name, {.format = TokenFormat::kText}).examples).examples(), 1) << name;
  }
  EXPECT_FALSE(holds_records(write("b.txt", "{one}\n"), std::nullopt)) << "text with a brace";
}

TEST_F(PrepareExamples, ABrokenLineIsNamed) {
  write("empty.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\"}\n");
  const std::string empty = testing::message_of<IoError>([&] { prepare("empty.jsonl"); });
  EXPECT_NE(empty.find("empty.jsonl:2: text: expected at least one character"), std::string::npos) << empty;
  write("a.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n");
  const std::string message = testing::message_of<IoError>([&] { prepare("a.jsonl"); });
  EXPECT_NE(message.find("a.jsonl:2: "), std::string::npos) << message;
  EXPECT_EQ(prepare("a.jsonl", {.skip_bad = 1}).skipped, 1);
}

/// Another process that makes the same file: its lock is held here.
class PrepareBeside : public PrepareExamples {
 protected:
  void SetUp() override {
    write("a.jsonl", "{\"text\": \"one\"}\n");
    examples_ = prepare("a.jsonl").examples;
    lock_.emplace(*FileLock::take(fs::path(examples_).replace_extension(".lock")));
    lock_->say(R"({"host": "node3", "pid": 4711, "since": "2026-11-22 10:00:00 UTC"})");
  }

  fs::path examples_;
  std::optional<FileLock> lock_;
};

TEST_F(PrepareBeside, IsWaitedForAndNamed) {
  std::vector<std::string> told;
  std::promise<void> waits;
  PrepareSettings settings;
  settings.on_wait = [&](const std::string& file, const std::string& who) {
    told = {file, who};
    waits.set_value();  // a second time throws
  };
  auto prepared = std::async(std::launch::async, [&] { return prepare("a.jsonl", settings); });
  waits.get_future().wait();
  EXPECT_EQ(prepared.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  lock_.reset();
  EXPECT_TRUE(prepared.get().found);
  EXPECT_EQ(told, (std::vector<std::string>{examples_.string(),
                                            "process 4711 on host node3 since 2026-11-22 10:00:00 UTC"}));
}

TEST_F(PrepareBeside, IsNotWaitedForWithoutEnd) {
  PrepareSettings settings;
  settings.patience = std::chrono::milliseconds(300);
  const std::string message = testing::message_of<IoError>([&] { prepare("a.jsonl", settings); });
  EXPECT_NE(message.find("is being made by process 4711 on host node3 since"), std::string::npos) << message;
  EXPECT_NE(message.find("has not grown for 1 s"), std::string::npos) << message;
}

/// As long as its file grows, it is at work.
TEST_F(PrepareBeside, HasTimeWhileItsFileGrows) {
  PrepareSettings settings;
  settings.patience = std::chrono::milliseconds(3000);
  auto prepared = std::async(std::launch::async, [&] { return prepare("a.jsonl", settings); });
  for (int i = 1; i <= 6; ++i) {
    testing::write_bytes(examples_.string() + ".partial", std::string(static_cast<std::size_t>(i), 'x'));
    EXPECT_EQ(prepared.wait_for(std::chrono::milliseconds(700)), std::future_status::timeout);
  }
  lock_.reset();
  EXPECT_TRUE(prepared.get().found);
}

}  // namespace
}  // namespace moeloom
