#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

constexpr const char* kIndex = "model.safetensors.index.json";

void write_shard(const std::filesystem::path& path, const std::vector<std::string>& names, float value) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back({name, DType::kF32, {1}});
  const std::vector<float> one = {value};
  write_safetensors(path, specs, std::vector<std::span<const float>>(names.size(), one));
}

float value_of(const SafetensorsFolder& folder, const std::string& name) {
  float value = 0.0f;
  folder.read(name, 0, {&value, 1});
  return value;
}

TEST(SafetensorsFolder, ReadsOneFile) {
  const TemporaryFolder folder;
  write_shard(folder / "model.safetensors", {"a", "b"}, 3.0f);
  const SafetensorsFolder set(folder.path());
  EXPECT_EQ(set.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(value_of(set, "b"), 3.0f);
  EXPECT_FALSE(set.has("c"));
  EXPECT_EQ(message_of<IoError>([&] { set.info("c"); }),
            folder.path().string() + ": has no tensor \"c\" among its 2");
}

TEST(SafetensorsFolder, ReadsShardsAsOneSet) {
  const TemporaryFolder folder;
  write_shard(folder / "one.safetensors", {"a", "c"}, 1.0f);
  write_shard(folder / "two.safetensors", {"b"}, 2.0f);
  write_bytes(folder / kIndex, R"({"metadata": {"total_size": 12}, "weight_map":
      {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}})");
  const SafetensorsFolder set(folder.path());
  EXPECT_EQ(set.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(value_of(set, "a"), 1.0f);
  EXPECT_EQ(value_of(set, "b"), 2.0f);
  EXPECT_EQ(set.file_of("b").path(), folder / "two.safetensors");
}

TEST(SafetensorsFolder, NamesWhatTheIndexAloneHas) {
  const TemporaryFolder folder;
  write_shard(folder / "one.safetensors", {"a", "c"}, 1.0f);
  write_bytes(folder / kIndex,
              R"({"weight_map": {"a": "one.safetensors", "c": "one.safetensors", "d": "one.safetensors"}})");
  const SafetensorsFolder opened(folder.path());
  EXPECT_EQ(opened.absent(), std::vector<std::string>{"d"});
  EXPECT_FALSE(opened.has("d"));
  EXPECT_TRUE(opened.has("c"));
}

TEST(SafetensorsFolder, RefusesAnIndexThatDisagreesWithTheShards) {
  struct Case {
    const char* index;
    const char* message;
  };
  const Case cases[] = {
      {R"({"weight_map": {"a": "one.safetensors", "b": "gone.safetensors", "c": "one.safetensors"}})",
       "gone.safetensors: No such file"},
      {R"({"weight_map": {"a": "one.safetensors"}})", "holds tensor \"c\", but"},
      {R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}})",
       "says it is in two.safetensors"},
      {R"({"weight_map": {"a": "../one.safetensors"}})", "expected the name of a file in this folder"},
      {R"({"weight_map": {"a": "one.safetensors\u0000/x"}})", "expected the name of a file in this folder"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "expected the name of a file in this folder"},
      {R"({"weight_map": {"a": 1}})", "found 1"},
      {R"({"weight_map": [1]})", "key \"weight_map\": expected an object"},
      {R"({"weights": {}})", "key \"weight_map\": expected an object"},
      {R"([])", "key \"weight_map\": expected an object"},
      {R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})", "\"a\" is given twice"},
      {R"({"weight_map")", "not JSON"},
  };
  const TemporaryFolder folder;
  write_shard(folder / "one.safetensors", {"a", "c"}, 1.0f);
  write_shard(folder / "two.safetensors", {"b"}, 2.0f);
  for (const Case& c : cases) {
    write_bytes(folder / kIndex, c.index);
    const std::string message = message_of<IoError>([&] { SafetensorsFolder{folder.path()}; });
    EXPECT_NE(message.find(c.message), std::string::npos) << c.index << "\n" << message;
  }
}

TEST(SafetensorsFolder, SaysWhatAFolderWithoutWeightsLacks) {
  const TemporaryFolder folder;
  EXPECT_EQ(message_of<IoError>([&] { SafetensorsFolder{folder.path()}; }),
            folder.path().string() + ": expected model.safetensors or " + kIndex + ", found neither");
  EXPECT_THROW(SafetensorsFolder{folder / "absent"}, IoError);
  std::filesystem::create_symlink("model.safetensors", folder / "model.safetensors");
  EXPECT_NE(message_of<IoError>([&] { SafetensorsFolder{folder.path()}; }).find("Too many levels"),
            std::string::npos);
}

}  // namespace
}  // namespace moeloom
