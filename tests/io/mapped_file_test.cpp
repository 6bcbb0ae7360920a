#include "moeloom/io/mapped_file.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"

#include <algorithm>
#include <fstream>
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

/// Pages of files that this process has mapped and read.
Index mapped_pages() {
  Index all = 0, resident = 0, of_files = 0;
  std::ifstream("/proc/self/statm") >> all >> resident >> of_files;
  return of_files;
}

TEST(MappedFile, ForgetsPagesAndFindsTheirBytesAgain) {
  const TemporaryFolder folder;
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  testing::write_bytes(folder / "file", std::string(kBytes, 'x'));
  const MappedFile file(folder / "file");
  const auto read = [&] { return std::ranges::count(text_of(file), 'x'); };
  const Index before = mapped_pages();
  EXPECT_EQ(read(), static_cast<std::ptrdiff_t>(kBytes));
  EXPECT_GT(mapped_pages(), before + 7000);
  file.forget();
  EXPECT_LT(mapped_pages(), before + 1000);
  EXPECT_EQ(read(), static_cast<std::ptrdiff_t>(kBytes));
  MappedFile().forget();
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
