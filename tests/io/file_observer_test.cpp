#include "io/file_observer.hpp"

#include "io/line_file.hpp"
#include "io/new_folder.hpp"
#include "io/routing_file.hpp"
#include "io/text_file.hpp"
#include "io/token_file_writer.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Sees all, and answers for one stage.
class Answering : public FileObserver {
 public:
  Answering(FileStage stage, FileAnswer answer) : stage_(stage), answer_(answer) { observe_files(this); }
  ~Answering() override { observe_files(nullptr); }
  FileAnswer before(FileStage stage, const std::filesystem::path&, Index bytes) override {
    seen.push_back(stage);
    return stage == stage_ ? FileAnswer{std::min(bytes, answer_.bytes), answer_.error} : FileAnswer{bytes, 0};
  }

  std::vector<FileStage> seen;

 private:
  FileStage stage_;
  FileAnswer answer_;
};

TEST(FileObserver, SeesAFileWrittenSyncedAndRenamed) {
  const testing::TemporaryFolder folder;
  Answering observer(FileStage::kWrite, {.bytes = 1 << 20});
  replace_file(folder / "file", "text");
  EXPECT_EQ(observer.seen,
            (std::vector{FileStage::kWrite, FileStage::kSync, FileStage::kRename, FileStage::kSync}));
}

TEST(FileObserver, SeesARecordingThatGoesOnSyncedOnce) {
  const testing::TemporaryFolder folder;
  const RoutingHeading heading{
      .model_type = "m", .layers = {0}, .experts = 2, .top_k = 1, .sequence_length = 1, .tokens = 1};
  RoutingFileWriter(folder / "r", heading, 0, 1000);
  Answering observer(FileStage::kWrite, {.bytes = 1 << 20});
  RoutingFileWriter(folder / "r", heading, 0, 1000, 10);
  EXPECT_EQ(observer.seen, (std::vector{FileStage::kWrite, FileStage::kSync}));
}

TEST(FileObserver, ShortWritesLoseNothing) {
  const testing::TemporaryFolder folder;
  Answering observer(FileStage::kWrite, {.bytes = 3});
  replace_file(folder / "file", "ten letters");
  write_safetensors(folder / "tensor", {{"a", DType::kF32, {4}}}, {std::vector<float>{1, 2, 3, 4}});
  EXPECT_EQ(read_text_file(folder / "file"), "ten letters");
  EXPECT_EQ(SafetensorsFile(folder / "tensor").floats("a"), (std::vector<float>{1, 2, 3, 4}));
}

TEST(FileObserver, AnErrorAtAnyStageLeavesWhatWasThere) {
  const testing::TemporaryFolder folder;
  replace_file(folder / "file", "before");
  for (const FileStage stage : {FileStage::kWrite, FileStage::kSync, FileStage::kRename}) {
    Answering observer(stage, {.error = EIO});
    EXPECT_THROW(replace_file(folder / "file", "after"), IoError);
    EXPECT_EQ(read_text_file(folder / "file"), "before");
    EXPECT_FALSE(std::filesystem::exists(folder / "file.partial"));
    NewFolder made(folder / "new");
    if (stage != FileStage::kWrite) {
      EXPECT_THROW(made.publish(), IoError);
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "new"));
  }
}

TEST(FileObserver, ADisksErrorAtAnyStageOfTokensIsOneAndGivesNoFileItsName) {
  const std::vector<std::uint32_t> ids{1, 2, 3};
  for (const FileStage stage : {FileStage::kWrite, FileStage::kSync, FileStage::kRename}) {
    const testing::TemporaryFolder folder;
    TokenFileWriter writer(folder / "data.bin", TokenLayout::kMegatron, 4, {});
    writer.add(ids, true);
    Answering observer(stage, {.error = EIO});
    EXPECT_THROW(writer.finish(), DiskError);
    EXPECT_FALSE(std::filesystem::exists(folder / "data.bin"));
    EXPECT_FALSE(std::filesystem::exists(folder / "data.idx"));
  }
}

TEST(FileObserver, ARefusedLineIsWrittenLater) {
  const testing::TemporaryFolder folder;
  LineFile lines(folder / "lines");
  {
    Answering observer(FileStage::kWrite, {.error = ENOSPC});
    EXPECT_NE(lines.append("first").find("No space left on device"), std::string::npos);
  }
  EXPECT_EQ(lines.append("second"), "");
  EXPECT_EQ(read_text_file(folder / "lines"), "first\nsecond\n");
}

}  // namespace
}  // namespace moeloom
