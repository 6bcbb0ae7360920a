#include "io/safetensors_shards.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

std::vector<std::string> files_of(const ShardPlan& plan) {
  std::vector<std::string> files;
  for (const SafetensorsShard& shard : plan.shards) files.push_back(shard.file_name);
  return files;
}

/// 40, 4, 40, 400 and 0 bytes.
const std::vector<TensorSpec> kSpecs = {{"a", DType::kF32, {10}},
                                        {"b", DType::kBF16, {2}},
                                        {"c", DType::kF32, {2, 5}},
                                        {"d", DType::kF32, {10, 10}},
                                        {"e", DType::kF32, {0, 7}}};

TEST(PlanShards, FillsEachShardInOrderAndGivesALargeTensorItsOwn) {
  const struct {
    Index bytes;
    std::vector<std::size_t> shard_of;  // a b c d e
  } cases[] = {{484, {0, 0, 0, 0, 0}}, {483, {0, 0, 0, 1, 1}}, {84, {0, 0, 0, 1, 2}},
               {83, {0, 0, 1, 2, 3}},  {44, {0, 0, 1, 2, 3}},  {1, {0, 1, 2, 3, 4}}};
  for (const auto& c : cases) {
    const ShardPlan plan = plan_shards(kSpecs, c.bytes);
    for (std::size_t i = 0; i < kSpecs.size(); ++i)
      EXPECT_EQ(plan.shard_of.at(kSpecs[i].name), c.shard_of[i]) << c.bytes << " " << kSpecs[i].name;
    EXPECT_EQ(plan.shards.size(), c.shard_of.back() + 1);
  }
}

TEST(PlanShards, NamesFilesAsHuggingFaceDoes) {
  EXPECT_EQ(files_of(plan_shards(kSpecs)), (std::vector<std::string>{"model.safetensors"}));
  EXPECT_EQ(plan_shards(kSpecs).index, "");
  const ShardPlan plan = plan_shards(kSpecs, 483);
  EXPECT_EQ(files_of(plan), (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                      "model-00002-of-00002.safetensors"}));
  const Document index = Document::parse(plan.index, "index");
  EXPECT_EQ(index.object("metadata").integer("total_size"), 484);
  const Document map = index.object("weight_map");
  EXPECT_EQ(map.keys().size(), kSpecs.size());
  EXPECT_EQ(map.text("c"), "model-00001-of-00002.safetensors");
  EXPECT_EQ(map.text("d"), "model-00002-of-00002.safetensors");
}

TEST(PlanShards, RefusesANameGivenTwiceInDifferentShards) {
  std::vector<TensorSpec> specs = kSpecs;
  specs.push_back(kSpecs.front());
  EXPECT_NE(message_of<ShapeError>([&] { plan_shards(specs, 40); }).find("\"a\" is given twice"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] { plan_shards(kSpecs, 0); }).find("at least one byte"),
            std::string::npos);
}

TEST(ShardWriter, WritesWhatTheFolderReads) {
  for (const Index bytes : {Index{1}, Index{60}, kShardBytes}) {
    const TemporaryFolder folder;
    const ShardPlan plan = plan_shards(kSpecs, bytes);
    create_shards(folder.path(), plan);
    ShardWriter writer(folder.path(), plan);
    for (const TensorSpec& spec : kSpecs) {
      const Index count = spec.shape.size() == 1 ? spec.shape[0] : spec.shape[0] * spec.shape[1];
      const std::vector<float> values(static_cast<std::size_t>(count), spec.name[0] == 'b' ? 1.5f : 0.3f);
      writer.write(spec.name, 0, std::span(values).first(values.size() / 2));
      writer.write(spec.name, count / 2, std::span(values).subspan(values.size() / 2));
    }
    writer.close();
    const SafetensorsFolder read(folder.path());
    EXPECT_EQ(read.names().size(), kSpecs.size());
    EXPECT_EQ(read.info("b").dtype, DType::kBF16);
    EXPECT_EQ(read.file_of("b").floats("b"), (std::vector<float>{1.5f, 1.5f}));
    EXPECT_EQ(read.file_of("d").floats("d"), std::vector<float>(100, 0.3f));
    EXPECT_EQ(read.file_of("a").metadata().at("format"), "pt");
  }
}

TEST(ShardWriter, RefusesWhatIsNotPlanned) {
  const TemporaryFolder folder;
  const ShardPlan plan = plan_shards(kSpecs);
  create_shards(folder.path(), plan);
  ShardWriter writer(folder.path(), plan);
  const std::vector<float> values(3);
  EXPECT_NE(message_of<ShapeError>([&] { writer.write("x", 0, values); }).find("not in the plan"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] { writer.write("a", 8, values); }).find("must lie inside"),
            std::string::npos);
  const std::byte three[3] = {};
  EXPECT_NE(message_of<ShapeError>([&] { writer.write_bytes("b", 0, three); }).find("must lie inside"),
            std::string::npos);
}

TEST(ShardWriter, RoundsLongTensorsOfHalfPrecisionToTheLastElement) {
  const TemporaryFolder folder;
  const Index count = (1 << 16) + 3;
  const ShardPlan plan = plan_shards({{"long", DType::kF16, {count}}});
  create_shards(folder.path(), plan);
  std::vector<float> values;
  for (Index i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 2048) + 0.5f);
  ShardWriter writer(folder.path(), plan);
  writer.write("long", 0, values);
  writer.close();
  const std::vector<float> read = SafetensorsFile(folder / "model.safetensors").floats("long");
  for (Index i = 0; i < count; ++i) ASSERT_EQ(read[at(i)], f16_to_float(float_to_f16(values[at(i)]))) << i;
}

}  // namespace
}  // namespace moeloom
