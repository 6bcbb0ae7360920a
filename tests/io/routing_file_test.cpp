#include "io/routing_file.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

const RoutingHeading kHeading{.model_type = "qwen3_moe",
                              .model_hash = "0123456789abcdef",
                              .layers = {0, 2},
                              .experts = 300,
                              .top_k = 3,
                              .sequence_length = 5,
                              .tokens = 20,
                              .seed = 0xFEDCBA9876543210u};

/// Different experts for each token, one slot in nine without any.
RecordedRouting routing_of(const RoutingHeading& heading, Index stream) {
  const CounterRandom random(7, static_cast<std::uint64_t>(stream));
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

void write_step(RoutingFileWriter& writer, const RoutingHeading& heading, Index number) {
  writer.begin_step(number);
  for (const Index layer : heading.layers) writer.add_layer(routing_of(heading, number * 100 + layer));
  writer.end_step(static_cast<std::uint64_t>(number) * 31 + 1);
}

/// Of a file with room for the steps [2, 6).
void write_steps(const std::filesystem::path& path, const RoutingHeading& heading,
                 const std::vector<Index>& numbers) {
  RoutingFileWriter writer(path, heading, 2, 6);
  for (const Index number : numbers) write_step(writer, heading, number);
}

/// Another text of the same length in its place.
std::string with(std::string file, const std::string& text, const std::string& other) {
  const std::size_t found = file.find(text);
  EXPECT_NE(found, std::string::npos) << text;
  EXPECT_EQ(text.size(), other.size());
  return file.replace(found, text.size(), other);
}

/// A file system may bring a file to the disk that is cut short to be written anew.
void hold(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::remove(path);
  write_bytes(path, bytes);
}

void read_all(const std::filesystem::path& path) {
  const RoutingFile file(path);
  for (Index step = 0; step < std::ssize(file.steps()); ++step)
    for (Index layer = 0; layer < std::ssize(file.heading().layers); ++layer) file.read(step, layer);
}

TEST(RoutingFile, HoldsWhatWasWrittenWithWeightsRoundedToFp16) {
  const TemporaryFolder folder;
  for (const RoutingHeading& heading :
       {kHeading, RoutingHeading{.layers = {5}, .experts = 1, .top_k = 1, .sequence_length = 1, .tokens = 1},
        RoutingHeading{
            .layers = {1}, .experts = 0x7FFF, .top_k = 8, .sequence_length = 640, .tokens = 1280}}) {
    write_steps(folder / "r", heading, {2, 5});
    const RoutingFile file(folder / "r");
    EXPECT_EQ(file.heading(), heading);
    ASSERT_EQ(file.steps().size(), 2u) << "two were left out";
    EXPECT_EQ(file.steps()[1].number, 5);
    EXPECT_EQ(file.steps()[1].text_hash, 5u * 31 + 1);
    for (Index step = 0; step < 2; ++step)
      for (Index layer = 0; layer < std::ssize(heading.layers); ++layer) {
        const RecordedRouting read = file.read(step, layer);
        RecordedRouting written =
            routing_of(heading, file.steps()[at(step)].number * 100 + heading.layers[at(layer)]);
        for (float& weight : written.topk_weights) weight = f16_to_float(float_to_f16(weight));
        EXPECT_EQ(read.topk_idx, written.topk_idx);
        EXPECT_EQ(read.topk_weights, written.topk_weights);
      }
    EXPECT_EQ(testing::names_in(folder.path()), std::vector<std::string>{"r"});
  }
}

TEST(RoutingFile, IsAnOrdinaryFileOfTwoTensorsAStep) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2, 3});
  const SafetensorsFile file(folder / "r");
  EXPECT_EQ(file.tensors().size(), 2u * 4 + 1);
  EXPECT_EQ(name_of(file.info("step.000003.topk_idx").dtype), "I16");
  EXPECT_EQ(file.info("step.000003.topk_weights").shape, (std::vector<Index>{2, 20, 3}));
  EXPECT_EQ(file.integers("text_hashes"), (std::vector<std::int64_t>{63, 94, 0, 0}));
}

TEST(RoutingFile, GoesOnFromTheStepsOfAnother) {
  const TemporaryFolder folder;
  write_steps(folder / "whole", kHeading, {2, 3, 4, 5});
  write_steps(folder / "r", kHeading, {2, 3, 4});
  RoutingFileWriter writer(folder / "r", kHeading, 2, 6, 4);
  EXPECT_EQ(RoutingFile(folder / "r").steps().size(), 2u) << "step 4 was of another course";
  write_step(writer, kHeading, 4);
  write_step(writer, kHeading, 5);
  EXPECT_EQ(read_bytes(folder / "r"), read_bytes(folder / "whole"));
  EXPECT_NE(message_of<IoError>([&] {
              RoutingFileWriter(folder / "r", kHeading, 2, 7, 4);
            }).find("another model, batch, seed or other steps"),
            std::string::npos);
}

TEST(RoutingFile, StepThatDidNotEndIsNotRecorded) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2});
  {
    RoutingFileWriter writer(folder / "r", kHeading, 2, 6, 3);
    writer.begin_step(3);
    writer.add_layer(routing_of(kHeading, 0));
    EXPECT_THROW(writer.end_step(1), ShapeError) << "a layer is missing";
  }
  EXPECT_EQ(RoutingFile(folder / "r").steps().size(), 1u);
}

TEST(RoutingFile, WritersRefuseWhatNoFileCanHold) {
  const TemporaryFolder folder;
  RoutingHeading heading = kHeading;
  heading.experts = 0x8000;
  EXPECT_THROW(RoutingFileWriter(folder / "r", heading, 0, 1), ShapeError);
  heading = kHeading;
  heading.layers = {2, 2};
  EXPECT_THROW(RoutingFileWriter(folder / "r", heading, 0, 1), ShapeError);
  EXPECT_THROW(RoutingFileWriter(folder / "r", kHeading, 1, 1), ShapeError);
  RoutingFileWriter writer(folder / "r", kHeading, 4, 5);
  EXPECT_THROW(writer.add_layer(routing_of(kHeading, 0)), ShapeError) << "of no step";
  writer.begin_step(4);
  EXPECT_THROW(writer.add_layer({}), ShapeError) << "of no token";
  for (int layer = 0; layer < 2; ++layer) writer.add_layer(routing_of(kHeading, 0));
  EXPECT_THROW(writer.add_layer(routing_of(kHeading, 0)), ShapeError) << "of no layer";
  writer.begin_step(5);
  EXPECT_THROW(writer.add_layer(routing_of(kHeading, 0)), ShapeError) << "of another step";
  EXPECT_THROW(RoutingFile(folder / "r"), IoError) << "no step is whole";
}

TEST(RoutingFile, RefusesEveryCutAndSurvivesEveryFlippedByteByName) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2, 5});
  const std::string whole = read_bytes(folder / "r");
  const auto path = folder / "damaged";
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 100) {
    hold(path, std::string_view(whole).substr(0, length));
    EXPECT_TRUE(message_of<IoError>([&] { read_all(path); }).starts_with(path.string() + ": ")) << length;
  }
  Index refused = 0;
  constexpr std::size_t kHeader = 1024;
  for (std::size_t place = 0; place < whole.size(); place += place < kHeader ? 1 : 7)
    for (const int flip : {1, 0x80}) {
      std::string other = whole;
      other[place] = static_cast<char>(other[place] ^ flip);
      hold(path, other);
      try {
        read_all(path);
      } catch (const IoError& error) {
        EXPECT_TRUE(std::string_view(error.what()).starts_with(path.string() + ": ")) << error.what();
        ++refused;
      }
    }
  EXPECT_GT(refused, 1000) << "another weight is no mistake";
}

TEST(RoutingFile, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  write_steps(folder / "r", kHeading, {2, 5});
  const std::string whole = read_bytes(folder / "r");
  RecordedRouting twice = routing_of(kHeading, 1);
  twice.topk_idx[3] = twice.topk_idx[4] = 12;
  RoutingFileWriter writer(folder / "t", kHeading, 2, 3);
  writer.begin_step(2);
  for (int layer = 0; layer < 2; ++layer) writer.add_layer(twice);
  writer.end_step(1);
  struct Case {
    std::string bytes;
    const char* told;
  };
  for (const auto& [bytes, told] :
       {Case{with(whole, R"(\"tokens\":20)", R"(\"tokens\":21)"), "must divide tokens = 21"},
        Case{with(whole, R"(\"tokens\":20)", R"(\"tokens\":25)"), "step.000002.topk_idx\" has another"},
        Case{with(whole, R"(\"num_experts\":300)", R"(\"num_experts\":009)"), "not JSON"},
        Case{with(whole, R"(\"num_experts\":300)", R"(\"num_experts\": 99)"), "of 99"},
        Case{with(whole, R"(\"num_experts\":300)", R"(\"num_experts\":1e9)"), "num_experts"},
        Case{with(whole, "[0,2]", "[2,0]"), "rise"},
        Case{with(whole, R"(\"to\":6)", R"(\"to\":7)"), "text_hashes\" has another"},
        Case{with(whole, R"(\"to\":6)", R"(\"to\":2)"), "steps from 2 to 2"},
        Case{with(whole, "step.000005.topk_idx", "step.000005.topk_idy"), "step.000005.topk_idx"},
        Case{with(whole, "\"routing\"", "\"another\""), "this is no recorded routing"},
        Case{read_bytes(folder / "t"), "step 2, layer 0: token 1 has expert 12 twice"},
        Case{"moeroute\x20" + std::string(99, '\0'), "record it anew"}, Case{"", "header length"},
        Case{std::string(4096, 'x'), "no safetensors file"}}) {
    write_bytes(folder / "x", bytes);
    const std::string found = message_of<IoError>([&] { read_all(folder / "x"); });
    EXPECT_NE(found.find(told), std::string::npos) << told << "\n" << found;
  }
}

TEST(RoutingFile, HashesATextByItsTokens) {
  const std::vector<std::int32_t> ids = {1, 2, 3}, others = {1, 2, 4};
  EXPECT_EQ(text_hash(ids), text_hash(ids));
  EXPECT_NE(text_hash(ids), text_hash(others));
  EXPECT_NE(text_hash(ids), text_hash(std::span(ids).first(2)));
}

}  // namespace
}  // namespace moeloom
