#include "moeloom/io/routing_file.hpp"

#include "moeloom/base/checksum.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <cstring>
#include <zstd.h>

#include "routing_planes.hpp"
#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::bytes_of_number;
using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

constexpr std::size_t kNumber = sizeof(std::uint64_t);
constexpr std::size_t kMark = 8;

const RoutingHeading kHeading{.model_type = "qwen3_moe",
                              .model_hash = "0123456789abcdef",
                              .layers = {0, 2},
                              .experts = 300,
                              .top_k = 3,
                              .sequence_length = 5,
                              .tokens = 20,
                              .seed = 0xFEDCBA9876543210u};

/// Different experts for each token, one slot in nine without any.
RecordedRouting routing_of(const RoutingHeading& heading, std::uint64_t stream) {
  const CounterRandom random(7, stream);
  RecordedRouting routing;
  for (Index slot = 0; slot < heading.tokens * heading.top_k; ++slot) {
    const auto i = static_cast<std::uint64_t>(slot);
    const Index stride = heading.experts / heading.top_k;
    const auto drawn = static_cast<Index>(random.below(static_cast<std::uint64_t>(stride), i));
    const bool none = random.below(9, i + 1000) == 0;
    routing.topk_idx.push_back(none ? -1 : static_cast<std::int32_t>(slot % heading.top_k * stride + drawn));
    routing.topk_weights.push_back(static_cast<float>(random.uniform(i)));
  }
  return routing;
}

void write_steps(const std::filesystem::path& path, const RoutingHeading& heading,
                 const std::vector<Index>& numbers) {
  RoutingFileWriter writer(path, heading);
  for (const Index number : numbers) {
    writer.begin_step({number, static_cast<std::uint64_t>(number) * 31});
    for (const Index layer : heading.layers)
      writer.add_layer(routing_of(heading, static_cast<std::uint64_t>(number * 100 + layer)));
  }
  writer.finish();
}

/// The file with its checksums made right again, as far as its blocks can be found: what intent can do, as
/// damage cannot.
std::string with_right_checksum(std::string file) {
  const auto number_at = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, file.data() + at, kNumber);
    return value;
  };
  const std::size_t heading_bytes = number_at(kMark);
  const std::size_t checksum_at = file.size() - kMark - kNumber;
  const std::size_t table_bytes = kNumber + number_at(checksum_at - kNumber) * 2 * kNumber * 3;
  const auto part = [&](std::size_t begin, std::size_t count) {
    return std::as_bytes(std::span(file.data() + begin, count));
  };
  std::size_t block = kMark + kNumber + heading_bytes;
  for (std::size_t at = checksum_at - table_bytes; at + 3 * kNumber < checksum_at; at += 2 * kNumber)
    for (int layer = 0; layer < 2; ++layer) {
      at += 2 * kNumber;
      const std::size_t bytes = number_at(at);
      if (bytes > checksum_at || block + bytes > checksum_at) break;
      file.replace(at + kNumber, kNumber, bytes_of_number(checksum(part(block, bytes))));
      block += bytes;
    }
  const std::array<std::uint64_t, 2> both = {checksum(part(kMark + kNumber, heading_bytes)),
                                             checksum(part(checksum_at - table_bytes, table_bytes))};
  file.replace(checksum_at, kNumber, bytes_of_number(checksum(std::as_bytes(std::span(both)))));
  return file;
}

/// A word of the heading, which keeps its length.
std::string with_word(std::string file, const std::string& word, const std::string& other) {
  const std::size_t found = file.find(word);
  EXPECT_NE(found, std::string::npos) << word;
  return with_right_checksum(file.replace(found, word.size(), other));
}

TEST(RoutingFile, HoldsWhatWasWrittenWithWeightsRoundedToFp16) {
  const TemporaryFolder folder;
  for (const RoutingHeading& heading :
       {kHeading, RoutingHeading{.layers = {5}, .experts = 1, .top_k = 1, .sequence_length = 1, .tokens = 1},
        RoutingHeading{
            .layers = {1}, .experts = 0xFFFF, .top_k = 8, .sequence_length = 640, .tokens = 1280}}) {
    const auto path = folder / "r.routing";
    write_steps(path, heading, {0, 7, 8});
    const RoutingFile file(path);
    EXPECT_EQ(file.heading(), heading);
    ASSERT_EQ(file.steps().size(), 3u);
    EXPECT_EQ(file.steps()[1].number, 7);
    EXPECT_EQ(file.steps()[1].text_hash, 7u * 31);
    for (Index step = 0; step < 3; ++step)
      for (Index layer = 0; layer < std::ssize(heading.layers); ++layer) {
        const RecordedRouting read = file.read(step, layer);
        const RecordedRouting written = routing_of(
            heading,
            static_cast<std::uint64_t>(file.steps()[at(step)].number * 100 + heading.layers[at(layer)]));
        EXPECT_EQ(read.topk_idx, written.topk_idx);
        ASSERT_EQ(read.topk_weights.size(), written.topk_weights.size());
        for (std::size_t i = 0; i < written.topk_weights.size(); ++i)
          EXPECT_EQ(read.topk_weights[i], f16_to_float(float_to_f16(written.topk_weights[i])));
      }
    EXPECT_EQ(testing::names_in(folder.path()), std::vector<std::string>{"r.routing"});
  }
}

TEST(RoutingFile, TakesFewerThanTwoBytesForASlotsExpertWhereThereAreFewExperts) {
  const TemporaryFolder folder;
  const RoutingHeading heading{
      .layers = {0}, .experts = 16, .top_k = 2, .sequence_length = 4096, .tokens = 4096};
  write_steps(folder / "r", heading, {0});
  EXPECT_LT(std::filesystem::file_size(folder / "r"), 4096u * 2 * 4 * 3 / 4) << "random ids and weights";
}

TEST(RoutingFile, GoesOnFromTheStepsOfAnother) {
  const TemporaryFolder folder;
  write_steps(folder / "whole", kHeading, {3, 4, 5, 6});
  write_steps(folder / "r", kHeading, {3, 4, 9});
  {
    const RoutingFile before(folder / "r");
    RoutingFileWriter writer(folder / "r", kHeading);
    writer.copy(before, 5);
    EXPECT_EQ(writer.steps(), 2);
    for (const Index number : {5, 6}) {
      writer.begin_step({number, static_cast<std::uint64_t>(number) * 31});
      for (const Index layer : kHeading.layers)
        writer.add_layer(routing_of(kHeading, static_cast<std::uint64_t>(number * 100 + layer)));
    }
    writer.finish();
  }
  EXPECT_EQ(read_bytes(folder / "r"), read_bytes(folder / "whole"));
}

TEST(RoutingFile, ThatIsNotFinishedLeavesTheOldOneAndNothingBeside) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {0});
  const std::string before = read_bytes(folder / "r");
  {
    RoutingFileWriter writer(folder / "r", kHeading);
    writer.begin_step({1, 0});
    writer.add_layer(routing_of(kHeading, 0));
    EXPECT_THROW(writer.finish(), ShapeError) << "a layer is missing";
  }
  EXPECT_EQ(read_bytes(folder / "r"), before);
  EXPECT_EQ(testing::names_in(folder.path()), std::vector<std::string>{"r"});
  std::filesystem::create_symlink("/dev/full", folder / "f.partial");
  EXPECT_NE(message_of<IoError>([&] { write_steps(folder / "f", kHeading, {0}); }).find("No space left"),
            std::string::npos);
}

TEST(RoutingFile, WritersRefuseWhatNoFileCanHold) {
  const TemporaryFolder folder;
  RoutingHeading heading = kHeading;
  heading.experts = 0x10000;
  EXPECT_THROW(RoutingFileWriter(folder / "r", heading), ShapeError);
  heading = kHeading;
  heading.layers = {2, 2};
  EXPECT_THROW(RoutingFileWriter(folder / "r", heading), ShapeError);
  RoutingFileWriter writer(folder / "r", kHeading);
  writer.begin_step({4, 0});
  EXPECT_THROW(writer.begin_step({5, 0}), ShapeError) << "without its layers";
  EXPECT_THROW(writer.add_layer({}), ShapeError) << "of no token";
  EXPECT_THROW(writer.finish(), ShapeError);
}

TEST(RoutingFile, RefusesEveryCutAndEveryFlippedByteByName) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2, 5});
  const std::string whole = read_bytes(folder / "r");
  const auto path = folder / "damaged";
  const auto read_all = [&] {
    const RoutingFile file(path);
    for (Index step = 0; step < std::ssize(file.steps()); ++step)
      for (Index layer = 0; layer < std::ssize(file.heading().layers); ++layer) file.read(step, layer);
  };
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_bytes(path, std::string_view(whole).substr(0, length));
    EXPECT_TRUE(message_of<IoError>(read_all).starts_with(path.string() + ": ")) << length << " bytes";
  }
  for (std::size_t place = 0; place < whole.size(); ++place)
    for (const int flip : {1, 0x80}) {
      std::string other = whole;
      other[place] = static_cast<char>(other[place] ^ flip);
      write_bytes(path, other);
      EXPECT_TRUE(message_of<IoError>(read_all).starts_with(path.string() + ": ")) << "byte " << place;
    }
}

/// Bytes that intent put there, so that no checksum finds them.
TEST(RoutingFile, SurvivesAnyBytesBehindRightChecksums) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2, 5});
  const std::string whole = read_bytes(folder / "r");
  const CounterRandom random(11, 3);
  const std::size_t end = whole.size() - kMark - 2 * kNumber;  // the number of steps keeps its place
  Index refused = 0;
  for (std::uint64_t round = 0; round < 4000; ++round) {
    std::string other = whole;
    for (std::uint64_t i = 0; i < 1 + round % 4; ++i)
      other[kMark + kNumber + random.below(end - kMark - kNumber, 16 * round + i)] =
          static_cast<char>(random.below(256, 16 * round + 8 + i));
    write_bytes(folder / "other", with_right_checksum(other));
    try {
      const RoutingFile file(folder / "other");
      file.read(0, 0);
      file.read(std::ssize(file.steps()) - 1, std::ssize(file.heading().layers) - 1);
    } catch (const IoError&) {
      ++refused;
    }
  }
  EXPECT_TRUE(refused > 1000 && refused < 3900) << refused << "; another weight is no mistake";
}

TEST(RoutingFile, SaysWhatIsWrongWithItsSizes) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2, 5});
  const std::string whole = read_bytes(folder / "r");
  const auto told = [&](const std::string& bytes) {
    write_bytes(folder / "x", bytes);
    return message_of<IoError>([&] { RoutingFile(folder / "x").read(0, 0); });
  };
  EXPECT_NE(told(with_word(whole, "\"version\":1", "\"version\":2")).find("version: expected 1, found 2"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "moeloom routing", "another routing")).find("format: expected"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "\"tokens\":20", "\"tokens\":21")).find("must divide tokens = 21"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "\"tokens\":20", "\"tokens\":25"))
                .find("step 2, layer 0: expected 300 bytes of ids and weights, found 240"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "\"num_experts\":300", "\"num_experts\":009")).find("not JSON"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "\"num_experts\":300", "\"num_experts\": 99")).find("of 99"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "\"num_experts\":300", "\"num_experts\":1e9")).find("num_experts"),
            std::string::npos);
  EXPECT_NE(told(with_word(whole, "[0,2]", "[2,0]")).find("rise"), std::string::npos);
  std::string none = whole;
  none.replace(whole.size() - kMark - 2 * kNumber, kNumber, std::string(kNumber, '\0'));
  EXPECT_NE(told(none).find("holds no step"), std::string::npos);
  none.replace(whole.size() - kMark - 2 * kNumber, kNumber, std::string(kNumber, '\xFF'));
  EXPECT_NE(told(none).find("does not lie inside"), std::string::npos);
  std::string long_heading = whole;
  long_heading.replace(kMark, kNumber, std::string(kNumber, '\xFF'));
  EXPECT_NE(told(long_heading).find("expected a heading of at most"), std::string::npos);
  EXPECT_NE(told("").find("no routing file"), std::string::npos);
  EXPECT_NE(told(std::string(4096, 'x')).find("no routing file"), std::string::npos);
}

TEST(RoutingFile, RefusesAnExpertThatATokenHasTwice) {
  const TemporaryFolder folder;
  RecordedRouting routing = routing_of(kHeading, 1);
  routing.topk_idx[3] = routing.topk_idx[4] = 12;
  RoutingFileWriter writer(folder / "r", kHeading);
  writer.begin_step({0, 0});
  writer.add_layer(routing);
  writer.add_layer(routing);
  writer.finish();
  EXPECT_NE(message_of<IoError>([&] {
              RoutingFile(folder / "r").read(0, 1);
            }).find("step 0, layer 2: token 1 has expert 12 twice"),
            std::string::npos);
}

TEST(RoutingFile, HashesATextByItsTokens) {
  const std::vector<std::int32_t> ids = {1, 2, 3}, others = {1, 2, 4};
  EXPECT_EQ(text_hash(ids), text_hash(ids));
  EXPECT_NE(text_hash(ids), text_hash(others));
  EXPECT_NE(text_hash(ids), text_hash(std::span(ids).first(2)));
}

TEST(RoutingFile, UnpacksNoMoreThanItsBytesJustify) {
  constexpr Index kSlots = Index{1} << 20;
  RecordedRouting alike;
  alike.topk_idx.assign(kSlots, 3);
  alike.topk_weights.assign(kSlots, 1.0f);
  const std::vector<std::byte> block = compressed_planes(alike);
  EXPECT_GE(block.size(), std::size_t{4 * kSlots} / 1024);
  const RecordedRouting back = routing_of_planes(block, kSlots, "block");
  EXPECT_EQ(back.topk_idx, alike.topk_idx);
  EXPECT_EQ(back.topk_weights, alike.topk_weights);
  std::vector<std::byte> packed(1000);
  const std::vector<char> zeros(4 * kSlots);
  packed.resize(ZSTD_compress(packed.data(), packed.size(), zeros.data(), zeros.size(), 3));
  EXPECT_NE(
      message_of<IoError>([&] { routing_of_planes(packed, kSlots, "block"); }).find("cannot hold 4194304"),
      std::string::npos);
}

}  // namespace
}  // namespace moeloom
