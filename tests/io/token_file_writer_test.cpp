#include "io/token_file_writer.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/token_source.hpp"

#include <sys/mman.h>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using TokenIds = std::vector<std::uint32_t>;

std::vector<std::int32_t> ids_in_file(const std::filesystem::path& path, TokenFormat format) {
  const TokenSource source(path, format);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
  source.read(0, source.size(), ids.data());
  return ids;
}

TEST(TokenFileWriter, WritesWhatTokenSourceReads) {
  for (const Index bytes : {2, 4}) {
    const testing::TemporaryFolder folder;
    TokenFileWriter writer(folder / "data.bin", TokenLayout::kMegatron, bytes, {});
    writer.add(TokenIds{1, 2, 3}, true);
    writer.add(TokenIds{4}, false);
    writer.add(TokenIds{}, true);
    writer.add(TokenIds{60000}, true);
    writer.finish();
    EXPECT_EQ(ids_in_file(folder / "data.bin", TokenFormat::kMegatron),
              (std::vector<std::int32_t>{1, 2, 3, 4, 60000}));
    EXPECT_EQ(testing::names_in(folder.path()), (std::vector<std::string>{"data.bin", "data.idx"}));
    const std::string index = testing::read_bytes(folder / "data.idx");
    EXPECT_EQ(index.substr(index.size() - 4 * 8),
              testing::bytes_of_number(std::int64_t{0}) + testing::bytes_of_number(std::int64_t{2}) +
                  testing::bytes_of_number(std::int64_t{3}) + testing::bytes_of_number(std::int64_t{4}));
  }
}

TEST(TokenFileWriter, GoesOnWhereAnotherStopped) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "data.bin";
  TokenFileWriter::Position position;
  {
    TokenFileWriter writer(path, TokenLayout::kRaw, 4, {});
    writer.add(TokenIds{1, 2}, true);
    position = writer.flush();
    writer.add(TokenIds{9, 9, 9}, true);  // not counted: nobody kept the position behind it
    writer.flush();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  TokenFileWriter writer(path, TokenLayout::kRaw, 4, position);
  writer.add(TokenIds{3}, false);
  writer.finish();
  EXPECT_EQ(ids_in_file(path, TokenFormat::kU32), (std::vector<std::int32_t>{1, 2, 3}));
}

TEST(TokenFileWriter, DamagedSequencesAreNoIndex) {
  for (const std::uint64_t length : {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{1} << 62}) {
    const testing::TemporaryFolder folder;
    TokenFileWriter writer(folder / "data.bin", TokenLayout::kMegatron, 4, {});
    writer.add(TokenIds{1, 2}, true);
    writer.flush();
    testing::write_bytes(folder / "data.bin.sequences.partial", testing::bytes_of_number(length << 1 | 1));
    EXPECT_NE(testing::message_of<IoError>([&] { writer.finish(); }).find("do not have the 2 tokens"),
              std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder / "data.bin"));
  }
}

TEST(TokenFileWriter, RefusesIdsThatDoNotFitAndFilesThatLackTheirBegin) {
  const testing::TemporaryFolder folder;
  TokenFileWriter writer(folder / "data.bin", TokenLayout::kMegatron, 2, {});
  EXPECT_NE(
      testing::message_of<IoError>([&] { writer.add(TokenIds{65536}, true); }).find("65536 does not fit"),
      std::string::npos);
  EXPECT_NE(testing::message_of<IoError>([&] {
              TokenFileWriter(folder / "other.bin", TokenLayout::kMegatron, 2, {.tokens = 5, .sequences = 1});
            }).find("expected at least 10 bytes"),
            std::string::npos);
}

TEST(TokenFileWriter, RefusesASequenceWhoseLengthTheIndexCannotHold) {
  constexpr std::size_t kTokens = std::size_t{1} << 31;
  const std::size_t bytes = kTokens * sizeof(std::uint32_t);
  void* const zeros = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) GTEST_SKIP() << "no 8 GiB of addresses";
  const testing::TemporaryFolder folder;
  TokenFileWriter writer(folder / "data.bin", TokenLayout::kMegatron, 2, {});
  const std::string text = testing::message_of<IoError>([&] {
    writer.add({static_cast<const std::uint32_t*>(zeros), kTokens}, true);
  });
  EXPECT_NE(text.find("a sequence of 2147483648 tokens does not fit"), std::string::npos) << text;
  EXPECT_EQ(writer.flush(), TokenFileWriter::Position{});
  ::munmap(zeros, bytes);
}

TEST(TokenFileWriter, RefusesFoldersAndWidthsBeforeItChangesAFile) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"a.bin", "b.idx"}) {
    std::filesystem::create_directories(folder / name / "full");
    const std::filesystem::path path = std::filesystem::path(folder / name).replace_extension(".bin");
    const std::string text =
        testing::message_of<ConfigError>([&] { TokenFileWriter(path, TokenLayout::kMegatron, 4, {}); });
    EXPECT_NE(text.find(std::string(name) + " is a folder"), std::string::npos) << text;
  }
  testing::write_bytes(folder / "c.bin.partial", "kept");
  EXPECT_THROW(TokenFileWriter(folder / "c.bin", TokenLayout::kMegatron, 3, {}), ShapeError);
  EXPECT_EQ(testing::read_bytes(folder / "c.bin.partial"), "kept");
  EXPECT_EQ(testing::names_in(folder.path()), (std::vector<std::string>{"a.bin", "b.idx", "c.bin.partial"}));
}

TEST(TokensLock, IsOneForANameAndItsBinAndLeavesNoFile) {
  const testing::TemporaryFolder folder;
  {
    const OutputLock lock = tokens_lock(folder / "data.bin");
    const OutputLock other = tokens_lock(folder / "data.u32");
    for (const char* name : {"data.bin", "data"}) {
      const std::string text = testing::message_of<ConfigError>([&] { tokens_lock(folder / name); });
      EXPECT_NE(text.find("is being written by another process, process "), std::string::npos) << text;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  testing::write_bytes(folder / ".data.idx.lock", "a killed one's");
  { const OutputLock again = tokens_lock(folder / "data"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace moeloom
