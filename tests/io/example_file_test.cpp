#include "io/example_file.hpp"

#include "io/file_observer.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <numeric>

#include "example_layout.hpp"
#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::bytes_of_number;
using testing::message_of;
using testing::names_in;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

/// Of any length from 1, about half of it learned.
Example example_of(std::uint64_t number) {
  const CounterRandom random(5, number);
  Example example;
  const std::uint64_t length = 1 + random.below(40, 0);
  for (std::uint64_t i = 0; i < length; ++i) {
    example.ids.push_back(static_cast<std::uint32_t>(random.below(150000, 2 * i + 1)));
    example.learned.push_back(random.below(2, 2 * i + 2) != 0);
  }
  return example;
}

void write_examples(const std::filesystem::path& path, std::uint64_t count, const std::string& key) {
  ExampleFileWriter writer(path, key);
  for (std::uint64_t i = 0; i < count; ++i) writer.add(example_of(i));
  EXPECT_EQ(writer.examples(), static_cast<Index>(count));
  writer.finish();
}

TEST(ExampleFile, ReadsBackWhatWasWrittenForAnyNumberOfExamplesAndAnyKey) {
  const TemporaryFolder folder;
  for (const std::uint64_t count : {1, 2, 3, 4, 5, 300}) {
    const std::string key(count, 'k');
    write_examples(folder / "a", count, key);
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"}) << "nothing stays beside it";
    const ExampleFile file(folder / "a");
    file.check_content();
    EXPECT_EQ(file.key(), key);
    ASSERT_EQ(file.examples(), static_cast<Index>(count));
    Index tokens = 0, targets = 0;
    std::uint32_t largest = 0;
    for (Index i = 0; i < file.examples(); ++i) {
      const Example expected = example_of(static_cast<std::uint64_t>(i));
      const ExampleView found = file.example(i);
      EXPECT_TRUE(std::ranges::equal(found.ids, expected.ids));
      EXPECT_TRUE(std::ranges::equal(found.learned, expected.learned));
      EXPECT_EQ(file.length(i), std::ssize(expected.ids));
      const auto learned = std::accumulate(expected.learned.begin() + 1, expected.learned.end(), Index{0});
      EXPECT_EQ(file.targets(i), learned) << "the first token comes after none";
      tokens += file.length(i);
      targets += learned;
      largest = std::max(largest, std::ranges::max(expected.ids));
    }
    EXPECT_EQ(file.tokens(), tokens);
    EXPECT_EQ(file.targets(), targets);
    EXPECT_EQ(file.largest_id(), static_cast<std::int32_t>(largest));
  }
}

TEST(ExampleFile, IsWrittenABlockAtATime) {
  const TemporaryFolder folder;
  Example large;
  for (std::uint32_t i = 0; i < 700001; ++i) {
    large.ids.push_back(i);
    large.learned.push_back(i % 3 == 0);
  }
  ExampleFileWriter writer(folder / "a", "");
  for (int i = 0; i < 5; ++i) writer.add(large);
  EXPECT_GT(std::filesystem::file_size(folder / "a.partial"), 8u << 20) << "before it is finished";
  writer.finish();
  const ExampleFile file(folder / "a");
  file.check_content();
  EXPECT_TRUE(std::ranges::equal(file.example(4).ids, large.ids));
  EXPECT_TRUE(std::ranges::equal(file.example(4).learned, large.learned));
  EXPECT_EQ(file.targets(4), 233333) << "of 233334 every third, the first of which is the first token";
}

TEST(ExampleFile, HasAnotherChecksumForAnotherKeyOrToken) {
  const TemporaryFolder folder;
  const auto checksum_of = [&](const Example& example, const char* key) {
    ExampleFileWriter writer(folder / "a", key);
    writer.add(example);
    writer.finish();
    return ExampleFile(folder / "a").checksum();
  };
  const std::uint64_t first = checksum_of({{1, 2}, {0, 1}}, "key");
  EXPECT_EQ(checksum_of({{1, 2}, {0, 1}}, "key"), first);
  EXPECT_NE(checksum_of({{1, 3}, {0, 1}}, "key"), first);
  EXPECT_NE(checksum_of({{1, 2}, {0, 0}}, "key"), first);
  EXPECT_NE(checksum_of({{1, 2}, {0, 1}}, "kez"), first);
}

TEST(ExampleFile, LeavesNothingOfAFileThatWasNotFinishedAndTheOldOneAsItWas) {
  const TemporaryFolder folder;
  write_examples(folder / "a", 3, "old");
  {
    ExampleFileWriter writer(folder / "a", "new");
    writer.add(example_of(1));
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  EXPECT_EQ(ExampleFile(folder / "a").key(), "old");
  {
    struct FullDisk : FileObserver {
      FileAnswer before(FileStage stage, const std::filesystem::path&, Index bytes) override {
        return {bytes, stage == FileStage::kSync ? ENOSPC : 0};
      }
    } full;
    ExampleFileWriter writer(folder / "a", "new");
    writer.add(example_of(1));
    observe_files(&full);
    EXPECT_THROW(writer.finish(), DiskError);
    observe_files(nullptr);
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  EXPECT_EQ(ExampleFile(folder / "a").key(), "old");
}

TEST(ExampleFile, RefusesToWriteWhatIsNoExample) {
  const TemporaryFolder folder;
  ExampleFileWriter writer(folder / "a", "");
  EXPECT_THROW(writer.add(Example{}), ShapeError);
  EXPECT_THROW(writer.add(Example{{1, 2}, {1}}), ShapeError);
  EXPECT_THROW(writer.add(Example{{1, 0x80000000u}, {1, 1}}), ShapeError);
  EXPECT_THROW(writer.add(Example{{1}, {2}}), ShapeError);
  EXPECT_THROW(writer.finish(), ShapeError);
  EXPECT_THROW(ExampleFileWriter(folder / "b", std::string((1 << 20) + 1, 'k')), ShapeError);
  EXPECT_THROW(ExampleFileWriter(folder / "no folder" / "b", ""), IoError);
}

TEST(ExampleFile, FindsEveryByteThatChangedAndEveryLengthThatIsAnother) {
  const TemporaryFolder folder;
  write_examples(folder / "right", 7, "the key");
  const std::string right = read_bytes(folder / "right");
  const auto opens = [&](const std::string& bytes) {
    write_bytes(folder / "damaged", bytes);
    const ExampleFile file(folder / "damaged");
    file.check_content();
  };
  EXPECT_NO_THROW(opens(right));
  for (std::size_t i = 0; i < right.size(); ++i) {
    std::string damaged = right;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    const std::string message = message_of<IoError>([&] { opens(damaged); });
    EXPECT_NE(message.find("damaged: "), std::string::npos) << "byte " << i << ": " << message;
  }
  for (std::size_t size = 0; size < right.size(); ++size)
    EXPECT_THROW(opens(right.substr(0, size)), IoError) << size;
  EXPECT_THROW(opens(right + std::string(8, '\0')), IoError);
  EXPECT_THROW(ExampleFile(folder / "missing"), IoError);
}

/// As intent can do it, with a checksum that is right.
TEST(ExampleFile, RefusesNumbersThatContradictEachOther) {
  const TemporaryFolder folder;
  ExampleFileWriter writer(folder / "right", "");
  writer.add(Example{{1, 2, 3}, {1, 1, 1}});
  writer.add(Example{{4, 5}, {0, 1}});
  writer.finish();
  const std::string right = read_bytes(folder / "right");
  const ExampleLayout layout(0, 5, 2);
  const auto message = [&](std::size_t place, const std::string& bytes) {
    std::string changed = right;
    changed.replace(place, bytes.size(), bytes);
    const auto part = [&](std::size_t begin, std::size_t end) {
      return checksum(std::as_bytes(std::span(changed).subspan(begin, end - begin)));
    };
    const std::uint64_t sum = example_checksum(part(0, layout.ids), part(layout.ends, layout.checksum));
    changed.replace(layout.checksum, kExampleNumber, bytes_of_number(sum));
    write_bytes(folder / "changed", changed);
    return message_of<IoError>([&] { ExampleFile file(folder / "changed"); });
  };
  const auto number = [](std::uint64_t value) { return bytes_of_number(value); };
  const auto expect = [](const std::string& found, const char* text) {
    EXPECT_NE(found.find(text), std::string::npos) << found;
  };
  expect(message(layout.ends, number(0)), "example 0 of tokens [0, 0) of 5");
  expect(message(layout.ends, number(6)), "example 0 of tokens [0, 6) of 5");
  expect(message(layout.ends + 8, number(3)), "example 1 of tokens [3, 3) of 5");
  expect(message(layout.ends, number(4)), "example 1 of 1 tokens has 1 targets");
  expect(message(layout.targets, bytes_of_number(std::uint32_t{3})), "example 0 of 3 tokens has 3 targets");
  expect(message(layout.targets, bytes_of_number(std::uint32_t{1})), "do not add up");
  expect(message(layout.numbers + 3 * 8, number(std::uint64_t{1} << 31)), "expected ids below 2^31");
  expect(message(layout.numbers, number(6)), "do not add up");
  expect(message(layout.numbers + 8, number(0)), "it holds no example");
  for (const std::uint64_t count : {std::uint64_t{100}, ~std::uint64_t{0}, std::uint64_t{1} << 61}) {
    expect(message(layout.numbers, number(count)), "do not take its");
    expect(message(layout.numbers + 8, number(count)), "do not take its");
  }
  expect(message(kExampleMark.size(), number(~std::uint64_t{0})), "a key of at most");
  EXPECT_EQ(message(0, std::string(kExampleMark)), "nothing thrown") << "so the rest of it is right";
}

}  // namespace
}  // namespace moeloom
