#include "moeloom/io/token_source.hpp"

#include "moeloom/base/errors.hpp"

#include <cstdint>
#include <vector>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::bytes_of_number;
using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

using Ids = std::vector<std::int32_t>;

template <typename Stored>
std::string stored(const std::vector<std::int64_t>& ids) {
  std::string bytes;
  for (const std::int64_t id : ids) bytes += bytes_of_number(static_cast<Stored>(id));
  return bytes;
}

Ids all_of(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.size()));
  source.read(0, source.size(), ids.data());
  return ids;
}

/// A Megatron index that a test can damage before it is written.
struct MegatronIndex {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::uint64_t sequences = 3;
  std::uint64_t documents = 3;
  std::vector<std::int64_t> lengths = {2, 0, 3};
  std::vector<std::int64_t> pointers = {0, 4, 4};
  std::vector<std::int64_t> first_sequences = {0, 2, 3};
  std::string rest = "";

  std::string bytes() const {
    return magic + bytes_of_number(version) + bytes_of_number(type) + bytes_of_number(sequences) +
           bytes_of_number(documents) + stored<std::int32_t>(lengths) + stored<std::int64_t>(pointers) +
           stored<std::int64_t>(first_sequences) + rest;
  }
};

const std::vector<std::int64_t> kFiveIds = {7, 65535, 0, 300, 2};

TEST(TokenSource, ReadsEveryFormatAsIds) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.txt", "Az\xff");
  write_bytes(folder / "b.bin", stored<std::uint16_t>(kFiveIds));
  write_bytes(folder / "c.u32", stored<std::uint32_t>({1, 2147483647, 5}));
  EXPECT_EQ(all_of({folder / "a.txt", TokenFormat::kText}), (Ids{65, 122, 255}));
  EXPECT_EQ(all_of({folder / "b.bin", TokenFormat::kU16}), (Ids{7, 65535, 0, 300, 2}));
  EXPECT_EQ(all_of({folder / "c.u32", TokenFormat::kU32}), (Ids{1, 2147483647, 5}));
}

TEST(TokenSource, ReadsRangesAndRefusesThoseOutside) {
  const TemporaryFolder folder;
  write_bytes(folder / "b.bin", stored<std::uint16_t>(kFiveIds));
  const TokenSource source(folder / "b.bin", TokenFormat::kU16);
  Ids ids(2);
  source.read(2, 2, ids.data());
  EXPECT_EQ(ids, (Ids{0, 300}));
  source.read(5, 0, ids.data());
  EXPECT_THROW(source.read(4, 2, ids.data()), ShapeError);
  EXPECT_THROW(source.read(-1, 1, ids.data()), ShapeError);
  EXPECT_THROW(source.read(0, -1, ids.data()), ShapeError);
}

TEST(TokenSource, FindsTheLargestIdWhereverItIs) {
  const TemporaryFolder folder;
  std::vector<std::int64_t> ids(2'500'000, 3);  // more than two of the blocks that threads share
  for (const std::size_t place : {std::size_t{0}, std::size_t{1'048'576}, ids.size() - 1}) {
    ids[place] = 40'000;
    write_bytes(folder / "b.bin", stored<std::uint16_t>(ids));
    ids[place] = 3;
    EXPECT_EQ(TokenSource(folder / "b.bin", TokenFormat::kU16).largest_id(), 40'000);
  }
  write_bytes(folder / "c.u32", stored<std::uint32_t>({1, 2147483648, 5}));
  EXPECT_NE(message_of<IoError>([&] {
              TokenSource(folder / "c.u32", TokenFormat::kU32).largest_id();
            }).find("c.u32: expected token ids below 2^31, found 2147483648"),
            std::string::npos);
}

TEST(TokenSource, RefusesFilesThatAreMissingEmptyOrCutInsideAToken) {
  const TemporaryFolder folder;
  write_bytes(folder / "empty.txt", "");
  write_bytes(folder / "odd.bin", "abc");
  const auto refusal = [&](const char* name, TokenFormat format) {
    return message_of<IoError>([&] { TokenSource(folder / name, format); });
  };
  EXPECT_NE(refusal("absent.txt", TokenFormat::kText).find("absent.txt: No such file"), std::string::npos);
  EXPECT_NE(refusal("empty.txt", TokenFormat::kText).find("empty.txt: expected tokens, found an empty file"),
            std::string::npos);
  EXPECT_NE(refusal("odd.bin", TokenFormat::kU16).find("whole number of tokens of 2 bytes, found 3"),
            std::string::npos);
  EXPECT_NE(refusal("odd.bin", TokenFormat::kU32).find("whole number of tokens of 4 bytes, found 3"),
            std::string::npos);
  EXPECT_NE(refusal("odd.bin", TokenFormat::kMegatron).find("odd.idx: No such file"), std::string::npos);
}

TEST(TokenSource, RefusesWhatHoldsIdsInAnotherFile) {
  const TemporaryFolder folder;
  const auto told = [&](const char* name, const std::string& bytes) {
    write_bytes(folder / name, bytes);
    return message_of<IoError>([&] { TokenSource(folder / name, TokenFormat::kU16); });
  };
  EXPECT_NE(told("a.u16", "\x93NUMPY" + std::string(122, ' ')).find("NumPy is not read"), std::string::npos);
  EXPECT_NE(told("a.u16.gz", "\x1f\x8b" + std::string(10, '\b')).find("gzip -d"), std::string::npos);
  EXPECT_EQ(told("a.u16", "\x1f\x8b" + std::string(10, '\b')), "nothing thrown") << "ids may begin so";
}

TEST(TokenSource, ReadsMegatronByAnyOfItsThreeNames) {
  const TemporaryFolder folder;
  write_bytes(folder / "set.v2.bin", stored<std::uint16_t>(kFiveIds));
  write_bytes(folder / "set.v2.idx", MegatronIndex{}.bytes());
  for (const char* name : {"set.v2.bin", "set.v2.idx", "set.v2"}) {
    EXPECT_EQ(guess_token_format(folder / name), TokenFormat::kMegatron) << name;
    EXPECT_EQ(all_of({folder / name, TokenFormat::kMegatron}), (Ids{7, 65535, 0, 300, 2})) << name;
  }
}

TEST(TokenSource, ReadsMegatronTokensOfOneAndFourBytes) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.bin", stored<std::uint8_t>({1, 2, 3, 4, 255}));
  write_bytes(folder / "a.idx", MegatronIndex{.type = 1, .pointers = {0, 2, 2}}.bytes());
  EXPECT_EQ(all_of({folder / "a", TokenFormat::kMegatron}), (Ids{1, 2, 3, 4, 255}));
  write_bytes(folder / "b.bin", stored<std::int32_t>({1, 2, 3, 4, 100'000}));
  write_bytes(folder / "b.idx", MegatronIndex{.type = 4, .pointers = {0, 8, 8}}.bytes());
  EXPECT_EQ(all_of({folder / "b", TokenFormat::kMegatron}), (Ids{1, 2, 3, 4, 100'000}));
}

TEST(TokenSource, RefusesADamagedMegatronIndexAndSaysWhy) {
  struct Case {
    const char* damage;
    void (*apply)(MegatronIndex&);
    const char* message;
  };
  const Case cases[] = {
      {"magic", [](MegatronIndex& i) { i.magic[0] = 'X'; }, "begins with MMIDIDX"},
      {"version", [](MegatronIndex& i) { i.version = 2; }, "version 1, found 2"},
      {"type", [](MegatronIndex& i) { i.type = 6; }, "4 (int32) or 8 (uint16), found 6"},
      {"one sequence too many", [](MegatronIndex& i) { i.sequences = 4; }, "4 sequences and 3 documents"},
      {"sequences overflow", [](MegatronIndex& i) { i.sequences = ~std::uint64_t{0} / 12 + 2; },
       "sequences and"},
      {"documents overflow", [](MegatronIndex& i) { i.documents = std::uint64_t{1} << 61; }, "documents as"},
      {"bytes at the end", [](MegatronIndex& i) { i.rest = "x"; }, "61 bytes of tables"},
      {"negative length", [](MegatronIndex& i) { i.lengths[0] = -1; },
       "sequence 0: expected a length of at least 0"},
      {"negative pointer", [](MegatronIndex& i) { i.pointers[0] = -2; }, "found -2"},
      {"hole", [](MegatronIndex& i) { i.pointers[2] = 6; },
       "sequence 2: expected to begin where the one before it ends, at byte 4, found 6"},
      {"overlap", [](MegatronIndex& i) { i.pointers[2] = 2; }, "at byte 4, found 2"},
      {"past the end", [](MegatronIndex& i) { i.lengths[2] = 4; }, "to end inside the 10 bytes of"},
      {"tokens left over", [](MegatronIndex& i) { i.lengths[2] = 2; }, "its sequences cover 8 bytes"},
      {"document falls", [](MegatronIndex& i) { i.first_sequences[2] = 1; },
       "document 2: expected a first sequence"},
      {"document outside", [](MegatronIndex& i) { i.first_sequences[2] = 4; }, "from 2 to 3, found 4"},
  };
  const TemporaryFolder folder;
  write_bytes(folder / "set.bin", stored<std::uint16_t>(kFiveIds));
  for (const Case& c : cases) {
    MegatronIndex index;
    c.apply(index);
    write_bytes(folder / "set.idx", index.bytes());
    const std::string message =
        message_of<IoError>([&] { TokenSource(folder / "set.bin", TokenFormat::kMegatron); });
    EXPECT_NE(message.find("set.idx: "), std::string::npos) << c.damage << ": " << message;
    EXPECT_NE(message.find(c.message), std::string::npos) << c.damage << ": " << message;
  }
}

TEST(TokenSource, RefusesAMegatronIndexCutAnywhere) {
  const TemporaryFolder folder;
  write_bytes(folder / "set.bin", stored<std::uint16_t>(kFiveIds));
  const std::string whole = MegatronIndex{}.bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "set.idx", whole.substr(0, size));
    EXPECT_THROW(TokenSource(folder / "set.bin", TokenFormat::kMegatron), IoError) << size << " bytes";
  }
}

TEST(TokenFormat, IsGuessedFromThePath) {
  EXPECT_EQ(guess_token_format("/nowhere/train.bin"), TokenFormat::kU16);
  EXPECT_EQ(guess_token_format("/nowhere/train.idx"), TokenFormat::kMegatron);
  EXPECT_EQ(guess_token_format("/nowhere/book.txt"), TokenFormat::kText);
  EXPECT_EQ(guess_token_format("/nowhere/train.u16"), TokenFormat::kU16);
  EXPECT_EQ(guess_token_format("/nowhere/train.u32"), TokenFormat::kU32);
  EXPECT_EQ(token_format("/nowhere/train.u32", {}), TokenFormat::kU32);
}

TEST(TokenFormat, IsGuessedWithoutWaitingForAPipe) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.bin").c_str(), 0600), 0);
  EXPECT_EQ(guess_token_format(folder / "pipe.bin"), TokenFormat::kU16);
}

TEST(TokenFormat, IsNotGuessedFor32BitIdsInAFileNamedAsOf16BitOnes) {
  const TemporaryFolder folder;
  const auto ids_below = [](Index end) {
    std::vector<Index> ids;
    for (Index i = 0; i < 500; ++i) ids.push_back(i * 7919 % end);
    return ids;
  };
  for (const Index end : {200, 150'000}) {
    const std::vector<Index> wide = ids_below(end);
    write_bytes(folder / "wide.bin", stored<std::uint32_t>(wide));
    EXPECT_THROW(
        {
          try {
            guess_token_format(folder / "wide.bin");
          } catch (const ConfigError& error) {
            EXPECT_NE(std::string(error.what()).find("data format = u32"), std::string::npos);
            throw;
          }
        },
        ConfigError);
    EXPECT_EQ(token_format(folder / "wide.bin", TokenFormat::kU16), TokenFormat::kU16) << "as it was asked";
  }
  write_bytes(folder / "narrow.bin", stored<std::uint16_t>(ids_below(65'536)));
  write_bytes(folder / "letters.bin", stored<std::uint16_t>(ids_below(65)));
  write_bytes(folder / "zeros.bin", std::string(4000, '\0'));
  write_bytes(folder / "short.bin", stored<std::uint16_t>({1, 0, 2, 0}));
  for (const char* name : {"narrow.bin", "letters.bin", "zeros.bin", "short.bin"})
    EXPECT_EQ(guess_token_format(folder / name), TokenFormat::kU16) << name;
}

}  // namespace
}  // namespace moeloom
