#include "moeloom/io/mapped_file.hpp"

#include "moeloom/base/errors.hpp"

#include <sys/stat.h>
#include <utility>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const TemporaryFolder folder;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{10001}}) {
    std::string content;
    for (std::size_t i = 0; i < size; ++i) content += static_cast<char>(i * 31 % 251);
    testing::write_bytes(folder / "file", content);
    EXPECT_EQ(text_of(MappedFile(folder / "file")), content);
  }
}

TEST(MappedFile, MovesWithoutLosingTheMapping) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "one", "first");
  testing::write_bytes(folder / "two", "second");
  MappedFile one(folder / "one");
  MappedFile two(folder / "two");
  MappedFile moved = std::move(one);
  EXPECT_EQ(text_of(moved), "first");
  EXPECT_TRUE(one.bytes().empty());
  moved = std::move(two);
  EXPECT_EQ(text_of(moved), "second");
}

TEST(MappedFile, NamesWhatCannotBeMapped) {
  const TemporaryFolder folder;
  const std::string absent = (folder / "absent").string();
  EXPECT_EQ(message_of<IoError>([&] { MappedFile{absent}; }),
            "cannot open " + absent + ": No such file or directory");
  EXPECT_EQ(message_of<IoError>([&] { MappedFile{folder.path()}; }),
            folder.path().string() + ": expected a file, found a folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of<IoError>([&] { MappedFile{folder / "pipe"}; }),
            (folder / "pipe").string() + ": expected a regular file");
}

}  // namespace
}  // namespace moeloom
