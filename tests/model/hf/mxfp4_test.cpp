#include "hf/stored/mxfp4.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/weights/weights_io.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "support/files.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom::mxfp4_test {
namespace {

constexpr Index kExperts = 2, kIn = 64, kOut = 6;

std::byte block_byte(Index i) {
  return static_cast<std::byte>(i * 37 + i / 7);
}
std::byte scale_byte(Index i) {
  return static_cast<std::byte>(118 + i % 17);
}

/// A number of tensor [E, in, out], straight from the format.
double number(Index expert, Index in, Index out) {
  const std::array<double, 8> fp4 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const Index block = (expert * kOut + out) * (kIn / 32) + in / 32;
  const auto pair = std::to_integer<unsigned>(block_byte(block * 16 + in % 32 / 2));
  const unsigned bits = in % 2 == 0 ? pair % 16 : pair / 16;
  const double scale = std::pow(2.0, std::to_integer<int>(scale_byte(block)) - 127);
  return (bits >= 8 ? -1 : 1) * fp4[bits % 8] * scale;
}

struct Part {
  std::string name;
  std::vector<Index> shape;
  std::function<std::byte(Index)> byte;
  DType dtype = DType::kU8;
};

void write_parts(const std::filesystem::path& folder, const std::vector<Part>& parts) {
  std::vector<TensorSpec> specs;
  for (const Part& part : parts) specs.push_back({part.name, part.dtype, part.shape});
  const ShardPlan plan = plan_shards(specs, kShardBytes);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (const Part& part : parts) {
    Index count = bytes_of(part.dtype);
    for (const Index size : part.shape) count *= size;
    std::vector<std::byte> bytes;
    for (Index i = 0; i < count; ++i) bytes.push_back(part.byte(i));
    writer.write_bytes(part.name, 0, bytes);
  }
  writer.close();
}

const std::vector<Part> kParts = {{"w_blocks", {kExperts, kOut, kIn / 32, 16}, block_byte},
                                  {"w_scales", {kExperts, kOut, kIn / 32}, scale_byte}};
const std::vector<Index> kShape = {kExperts, kIn, kOut};

TEST(Mxfp4, IsReadAsTheTransposedTensorThatItStandsForInEveryLayoutOfColumns) {
  const testing::TemporaryFolder folder;
  write_parts(folder.path(), kParts);
  const SafetensorsFolder set(folder.path());
  ASSERT_TRUE(is_in_mxfp4(set, "w"));
  ASSERT_EQ(mxfp4_complaint(set, "w", kShape), "");
  for (Index e = 0; e < kExperts; ++e) {
    Matrix whole(kOut, kIn), up(kOut / 2, kIn), apart(kOut, kIn);
    read_slice(set, {}, {"w", 0, kOut, kShape, e * kIn * kOut, SliceLayout::kTransposed}, whole);
    read_slice(set, {}, {"w", 0, kOut / 2, kShape, e * kIn * kOut + kOut / 2, SliceLayout::kTransposed}, up);
    read_slice(set, {}, {"w", 0, kOut, kShape, e * kIn * kOut, SliceLayout::kInterleaved}, apart);
    for (Index out = 0; out < kOut; ++out)
      for (Index in = 0; in < kIn; ++in) {
        ASSERT_EQ(whole.row(out)[in], number(e, in, out)) << e << ' ' << out << ' ' << in;
        ASSERT_EQ(apart.row(out % 2 * (kOut / 2) + out / 2)[in], number(e, in, out));
        const Index below = out % (kOut / 2);
        ASSERT_EQ(up.row(below)[in], number(e, in, below + kOut / 2));
      }
  }
}

TEST(Mxfp4, HasNegativeZerosTinyAndInfiniteNumbersAndNaN) {
  const testing::TemporaryFolder folder;
  const auto scale = [](Index i) { return std::array{std::byte{0}, std::byte{254}, std::byte{255}}[at(i)]; };
  write_parts(folder.path(), {{"w_blocks", {1, 3, 1, 16}, [](Index) { return std::byte{0x78}; }},
                              {"w_scales", {1, 3, 1}, scale}});
  Matrix rows(3, 32);
  read_slice(SafetensorsFolder(folder.path()), {}, {"w", 0, 3, {1, 32, 3}, 0, SliceLayout::kTransposed},
             rows);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(rows.row(0)[0]), 0x80000000u);
  EXPECT_EQ(rows.row(0)[1], std::ldexp(6.0f, -127));
  EXPECT_EQ(rows.row(1)[1], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(rows.row(2)[1]));
}

TEST(Mxfp4, IsNotAskedForWhereTheTensorItselfIsThereOrAPartIsMissing) {
  const testing::TemporaryFolder folder, half;
  write_parts(folder.path(), {kParts[0], kParts[1], {"w", {4}, block_byte, DType::kF32}});
  EXPECT_FALSE(is_in_mxfp4(SafetensorsFolder(folder.path()), "w"));
  write_parts(half.path(), {kParts[0]});
  EXPECT_FALSE(is_in_mxfp4(SafetensorsFolder(half.path()), "w"));
}

TEST(Mxfp4, NamesThePartThatIsNotAsItShouldBe) {
  struct Wrong {
    std::vector<Part> parts;
    std::vector<Index> shape;
    std::string complaint;
  };
  for (const Wrong& wrong :
       {Wrong{kParts,
              {kExperts, kIn, kOut + 1},
              "tensor w_blocks: expected U8 [2,7,2,16], found U8 [2,6,2,16]"},
        Wrong{{kParts[0], {"w_scales", {kExperts, kOut, 3}, scale_byte}},
              kShape,
              "tensor w_scales: expected U8 [2,6,2], found U8 [2,6,3]"},
        Wrong{{kParts[0], {"w_scales", {kExperts, kOut, 2}, scale_byte, DType::kF32}},
              kShape,
              "tensor w_scales: expected U8 [2,6,2], found F32 [2,6,2]"},
        Wrong{kParts, {kExperts, 40, kOut}, "blocks of 32 numbers along the second size of w [2,40,6]"}}) {
    const testing::TemporaryFolder folder;
    write_parts(folder.path(), wrong.parts);
    const std::string complaint = mxfp4_complaint(SafetensorsFolder(folder.path()), "w", wrong.shape);
    EXPECT_NE(complaint.find(wrong.complaint), std::string::npos) << complaint;
  }
}

/// A whole model whose experts are in MXFP4, of a family that keeps stacks [E, in, out].
TEST(Mxfp4, OfAModelsExpertsIsLoadedAndWrittenBackAsTheTensorsThemselves) {
  ModelConfig config = testing::small_config();
  config.model_type = "qwen3_vl_moe_text";
  config.hidden_size = 32;
  config.moe_intermediate_size = 32;
  config.names = checkpoint_names(config.family(), {});
  ASSERT_EQ(config.names.experts, ExpertLayout::kStackedTransposed);
  const testing::TemporaryFolder folder, back;
  std::vector<Part> parts;
  for (const TensorSpec& spec : tensor_specs(config)) {
    if (spec.name.find(".experts.") == std::string::npos) {
      parts.push_back({spec.name, spec.shape, [](Index) { return std::byte{0}; }, spec.dtype});
      continue;
    }
    parts.push_back(
        {spec.name + "_blocks", {spec.shape[0], spec.shape[2], spec.shape[1] / 32, 16}, block_byte});
    parts.push_back({spec.name + "_scales", {spec.shape[0], spec.shape[2], spec.shape[1] / 32}, scale_byte});
  }
  write_parts(folder.path(), parts);
  const Mesh mesh(Communicator::self(), {});
  ParameterStore first(parameter_specs(config, {0, config.num_experts}));
  const WeightCoverage coverage = load_weights(first, SafetensorsFolder(folder.path()), config);
  EXPECT_EQ(coverage.found, coverage.expected);
  EXPECT_TRUE(coverage.unused.empty());
  save_weights(first, config, mesh, back.path(), {.dtype = DType::kBF16});
  ParameterStore second(parameter_specs(config, {0, config.num_experts}));
  load_weights(second, SafetensorsFolder(back.path()), config);
  Index different_from_zero = 0;
  for (const Parameter& parameter : first.parameters()) {
    const MatrixView again = second.find(parameter.spec.name).value;
    EXPECT_TRUE(std::ranges::equal(parameter.value.flat(), again.flat())) << parameter.spec.name;
    for (const float value : parameter.value.flat()) different_from_zero += value != 0 ? 1 : 0;
  }
  EXPECT_GT(different_from_zero, 0);
}

}  // namespace
}  // namespace moeloom::mxfp4_test
