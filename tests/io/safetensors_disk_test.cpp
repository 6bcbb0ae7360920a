// Writing where the system refuses: a full disk is met when the file is made, and leaves nothing behind.
#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"

#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::FileSizeLimit;
using testing::message_of;
using testing::TemporaryFolder;

SafetensorsLayout megabyte() {
  return plan_safetensors({{"x", DType::kF32, {512, 512}}}, {});
}

TEST(SafetensorsDisk, ReservesTheWholeFileWhenItIsMade) {
  const TemporaryFolder folder;
  const SafetensorsLayout layout = megabyte();
  create_safetensors(folder / "t", layout);
  EXPECT_EQ(static_cast<Index>(std::filesystem::file_size(folder / "t")), layout.file_bytes);
  EXPECT_EQ(SafetensorsFile(folder / "t").floats("x"), std::vector<float>(512 * 512));
}

TEST(SafetensorsDisk, FailsAtOnceAndLeavesNothingWhereTheSpaceIsMissing) {
  const TemporaryFolder folder;
  std::string message;
  {
    const FileSizeLimit limit(4096);
    message = message_of<IoError>([&] { create_safetensors(folder / "t", megabyte()); });
  }
  EXPECT_TRUE(message.starts_with("cannot reserve ")) << message;
  EXPECT_NE(message.find((folder / "t").string() + ": File too large"), std::string::npos) << message;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsDisk, ReportsAWriteThatTheSystemRefuses) {
  const TemporaryFolder folder;
  const SafetensorsLayout layout = megabyte();
  create_safetensors(folder / "t", layout);
  SafetensorsWriter writer(folder / "t", layout);
  const std::vector<float> values(512 * 512, 1.0f);
  const FileSizeLimit limit(4096);
  EXPECT_NE(message_of<IoError>([&] { writer.write("x", 0, values); }).find("cannot write to"),
            std::string::npos);
}

TEST(SafetensorsDisk, NamesTheFolderThatIsNotThere) {
  const TemporaryFolder folder;
  const std::string path = (folder / "no" / "t").string();
  EXPECT_EQ(message_of<IoError>([&] { create_safetensors(path, megabyte()); }),
            "cannot create " + path + ": No such file or directory");
}

TEST(SafetensorsDisk, RefusesToWriteIntoAFileOfAnotherPlan) {
  const TemporaryFolder folder;
  const SafetensorsLayout layout = megabyte();
  testing::write_bytes(folder / "t", "short");
  EXPECT_NE(message_of<IoError>([&] { SafetensorsWriter(folder / "t", layout); }).find("found 5"),
            std::string::npos);
  EXPECT_THROW(SafetensorsWriter(folder / "absent", layout), IoError);
}

}  // namespace
}  // namespace moeloom
