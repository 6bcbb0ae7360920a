#include "moeloom/io/safetensors.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <cstring>
#include <limits>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/golden.hpp"
#include "support/growth.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::bytes_of_number;
using testing::growth_of_time;
using testing::kMostLinearGrowth;
using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

std::string file_of(const std::string& json, const std::string& data) {
  return bytes_of_number(static_cast<std::uint64_t>(json.size())) + json + data;
}

std::vector<float> random_floats(Index count, std::uint64_t stream) {
  const CounterRandom random(20, stream);
  std::vector<float> values;
  for (Index i = 0; i < count; ++i)
    values.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
  return values;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

TEST(Safetensors, ReadsTheBitsThatWereWritten) {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> specs = {{"scalar", DType::kF32, {}},
                                         {"none", DType::kF32, {0, 5}},
                                         {"b.weight", DType::kF32, {7, 3}},
                                         {"a \"quoted\" \u00e9", DType::kF32, {11}},
                                         {"one", DType::kF32, {1, 1, 1, 1}}};
  std::vector<std::vector<float>> values;
  for (const TensorSpec& spec : specs)
    values.push_back(random_floats(TensorInfo{.shape = spec.shape}.elements(), stream_of(spec.name)));
  values[2][0] = std::numeric_limits<float>::quiet_NaN();
  values[2][1] = -0.0f;
  values[2][2] = std::numeric_limits<float>::denorm_min();
  write_safetensors(folder / "t.safetensors", specs, {values.begin(), values.end()},
                    {{"format", "pt"}, {"x", ""}});

  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.tensors().size(), specs.size());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"x", ""}}));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(file.info(specs[i].name).shape, specs[i].shape);
    EXPECT_TRUE(same_bits(file.floats(specs[i].name), values[i])) << specs[i].name;
  }
}

TEST(Safetensors, ReadsOtherTypesAtAnyAlignment) {
  const TemporaryFolder folder;
  const std::string json =
      R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"i":{"dtype":"I64","shape":[2],"data_offsets":[1,17]},)"
      R"("j":{"dtype":"I32","shape":[1],"data_offsets":[17,21]},"d":{"dtype":"F64","shape":[],"data_offsets":[21,29]},)"
      R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[29,31]},"h":{"dtype":"F16","shape":[1],"data_offsets":[31,33]},)"
      R"("f":{"dtype":"F32","shape":[1],"data_offsets":[33,37]}})";
  write_bytes(folder / "t",
              file_of(json, bytes_of_number(std::uint8_t{200}) + bytes_of_number(std::int64_t{-5}) +
                                bytes_of_number(std::int64_t{1} << 40) + bytes_of_number(std::int32_t{-7}) +
                                bytes_of_number(0.1) + bytes_of_number(std::uint16_t{0x3FC0}) +
                                bytes_of_number(std::uint16_t{0x3E00}) + bytes_of_number(0.25f)));
  const SafetensorsFile file(folder / "t");
  EXPECT_EQ(file.integers("u"), (std::vector<std::int64_t>{200}));
  EXPECT_EQ(file.integers("i"), (std::vector<std::int64_t>{-5, std::int64_t{1} << 40}));
  EXPECT_EQ(file.integers("j"), (std::vector<std::int64_t>{-7}));
  EXPECT_EQ(testing::doubles_in(file, "d"), (std::vector<double>{0.1}));
  EXPECT_EQ(testing::doubles_in(file, "f"), (std::vector<double>{0.25}));
  EXPECT_EQ(file.floats("b"), (std::vector<float>{1.5f}));
  EXPECT_EQ(file.floats("h"), (std::vector<float>{1.5f}));
  EXPECT_EQ(message_of<IoError>([&] { file.integers("f"); }),
            (folder / "t").string() + ": tensor \"f\": expected I64, I32 or U8, found F32");
  EXPECT_EQ(message_of<IoError>([&] { file.info("nope"); }),
            (folder / "t").string() + ": has no tensor \"nope\" among its 7");
}

TEST(Safetensors, ReadsAndWritesPartsAndRefusesThoseOutside) {
  const TemporaryFolder folder;
  const SafetensorsLayout layout =
      plan_safetensors({{"x", DType::kF32, {2, 3}}, {"step", DType::kI64, {1}}}, {});
  create_safetensors(folder / "t", layout);
  SafetensorsWriter first(folder / "t", layout);
  SafetensorsWriter second(folder / "t", layout);
  second.write("x", 4, std::vector<float>{5, 6});
  first.write("x", 0, std::vector<float>{1, 2, 3, 4});
  first.write("x", 6, std::span<const float>());
  EXPECT_THROW(first.write("x", 5, std::vector<float>{1, 2}), ShapeError);
  EXPECT_THROW(first.write("x", -1, std::vector<float>{1}), ShapeError);
  EXPECT_THROW(first.write("y", 0, std::vector<float>{1}), ShapeError);
  EXPECT_THROW(first.write("step", 0, std::vector<float>{1}), ShapeError);
  first.close();
  second.close();
  second.close();
  EXPECT_THROW(first.write("x", 0, std::vector<float>{1}), ShapeError);

  const SafetensorsFile file(folder / "t");
  EXPECT_EQ(file.floats("x"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  std::vector<float> part(2);
  file.read("x", 4, part);
  EXPECT_EQ(part, (std::vector<float>{5, 6}));
  EXPECT_THROW(file.read("x", 5, part), ShapeError);
  EXPECT_THROW(file.read("x", -1, part), ShapeError);
}

TEST(Safetensors, PlansInTheOrderGivenWithDataAtAMultipleOfEight) {
  for (Index letters = 1; letters <= 9; ++letters) {
    const std::string name(static_cast<std::size_t>(letters), 'n');
    const SafetensorsLayout layout =
        plan_safetensors({{name, DType::kF32, {3}}, {"a", DType::kBF16, {1}}}, {});
    EXPECT_EQ(layout.header.size() % 8, 0u);
    EXPECT_EQ(layout.tensors.at(name).begin, static_cast<Index>(layout.header.size()));
    EXPECT_EQ(layout.tensors.at("a").begin, layout.tensors.at(name).begin + 12);
    EXPECT_EQ(layout.file_bytes, layout.tensors.at("a").begin + 2);
  }
  EXPECT_EQ(plan_safetensors({}, {}).header, bytes_of_number(std::uint64_t{8}) + "{}      ");
}

TEST(Safetensors, RefusesAPlanThatNoFileCanHave) {
  constexpr Index kHuge = Index{1} << 62;
  EXPECT_THROW(plan_safetensors({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}, {}), ShapeError);
  EXPECT_THROW(plan_safetensors({{"__metadata__", DType::kF32, {1}}}, {}), ShapeError);
  EXPECT_THROW(plan_safetensors({{"a", DType::kF32, {-1}}}, {}), ShapeError);
  EXPECT_THROW(plan_safetensors({{"a", DType::kF32, {kHuge, 4}}}, {}), ShapeError);
  EXPECT_THROW(plan_safetensors({{"a", DType::kU8, {kHuge}}, {"b", DType::kU8, {kHuge}}}, {}), ShapeError);
  EXPECT_THROW(plan_safetensors({{"\xff", DType::kF32, {1}}}, {}), ShapeError);
}

struct Damage {
  const char* what;
  std::string file;
  const char* message;
};

std::string one_tensor(const std::string& fields) {
  return file_of("{\"x\":{" + fields + "}}", "12345678");
}

std::vector<Damage> damaged_files() {
  const std::string good = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  return {
      {"empty file", "", "at least 8 bytes of header length, found 0"},
      {"seven bytes", "1234567", "found 7"},
      {"header longer than file", bytes_of_number(std::uint64_t{99}) + "{}", "a header of 99 bytes, found 2"},
      {"header of 2^64 - 1", bytes_of_number(~std::uint64_t{0}) + "{}", "at most 100000000 bytes"},
      {"header above the limit", bytes_of_number(std::uint64_t{100'000'001}) + "{}", "found 100000001"},
      {"no header", file_of("", ""), "not JSON"},
      {"no JSON", file_of("{\"x\":", ""), "not JSON: parse error at line 1"},
      {"text after the JSON", file_of("{} x", ""), "not JSON"},
      {"an array", file_of("[]", ""), "expected a JSON object, found an array of 0"},
      {"deep nesting", file_of(std::string(100'000, '['), ""), "nested deeper"},
      {"name twice", file_of("{" + good + "," + good + "}", "12345678"), "\"x\" is given twice"},
      {"field twice", one_tensor(R"("dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8])"),
       "given twice"},
      {"entry is a number", file_of(R"({"x":5})", ""), "tensor \"x\": expected an object, found 5"},
      {"no dtype", one_tensor(R"("shape":[2],"data_offsets":[0,8])"), "has no \"dtype\""},
      {"dtype is a number", one_tensor(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"), "unknown dtype 4"},
      {"unknown dtype", one_tensor(R"("dtype":"F4","shape":[8],"data_offsets":[0,8])"),
       "unknown dtype \"F4\"; known: F32"},
      {"no shape", one_tensor(R"("dtype":"F32","data_offsets":[0,8])"), "has no \"shape\""},
      {"shape is a number", one_tensor(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"),
       "expected an array, found 2"},
      {"negative size", one_tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "found -2"},
      {"fractional size", one_tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "found 2.0"},
      {"size is text", one_tensor(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), "found \"2\""},
      {"size above 2^63", one_tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"),
       "found 9223372036854775808"},
      {"product overflows to 8",
       one_tensor(R"("dtype":"F32","shape":[4611686018427387905,2],"data_offsets":[0,8])"),
       "more than 2^63 bytes"},
      {"product overflows to 0",
       one_tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       "more than 2^63 bytes"},
      {"no offsets", one_tensor(R"("dtype":"F32","shape":[2])"), "has no \"data_offsets\""},
      {"one offset", one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8])"),
       "expected 2 numbers, found 1"},
      {"three offsets", one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), "found 3"},
      {"offsets fall", one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "lie outside"},
      {"negative offset", one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "found -8"},
      {"offset past the end", one_tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"),
       "its bytes from 0 to 16 lie outside the file's 8 bytes of data"},
      {"shape too small", one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])"),
       "its shape and dtype need 4 bytes, its data_offsets from 0 to 8 hold 8"},
      {"shape too large", one_tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), "need 12 bytes"},
      {"overlap",
       file_of("{" + good + R"(,"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
       "tensor \"y\" overlaps"},
      {"hole", one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
       "4 bytes before tensor \"x\""},
      {"bytes at the end", file_of("{" + good + "}", "123456789"), "1 bytes at the end"},
      {"bytes but no tensor", file_of("{}", "1"), "1 bytes at the end"},
      {"metadata is text", file_of(R"({"__metadata__":"x"})", ""), "__metadata__: expected an object"},
      {"metadata holds a number", file_of(R"({"__metadata__":{"a":1}})", ""), "expected a string, found 1"},
  };
}

/// So many tensors of one byte.
std::string file_of_tiny_tensors(Index count) {
  std::string header = "{";
  for (Index i = 0; i < count; ++i) {
    const std::string n = std::to_string(i);
    header += (i == 0 ? "\"t" : ",\"t") + n + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + n + "," +
              std::to_string(i + 1) + "]}";
  }
  return file_of(header + "}", std::string(static_cast<std::size_t>(count), 'x'));
}

TEST(Safetensors, ReadsAHeaderInTimeThatGrowsWithItsLength) {
  const TemporaryFolder folder;
  const auto file = [&](Index count) {
    const std::filesystem::path path = folder / (std::to_string(count) + ".safetensors");
    write_bytes(path, file_of_tiny_tensors(count));
    return path;
  };
  const double growth =
      growth_of_time(4000, file, [](const std::filesystem::path& path) { SafetensorsFile{path}; });
  EXPECT_LT(growth, kMostLinearGrowth);
}

TEST(Safetensors, TakesMetadataThatAreNone) {
  const TemporaryFolder folder;
  write_bytes(folder / "a", file_of(R"({"__metadata__":null})", ""));
  EXPECT_TRUE(SafetensorsFile(folder / "a").metadata().empty());
}

TEST(Safetensors, RefusesEveryDamagedFileAndSaysWhy) {
  const TemporaryFolder folder;
  for (const Damage& damage : damaged_files()) {
    write_bytes(folder / "bad.safetensors", damage.file);
    const std::string message = message_of<IoError>([&] { SafetensorsFile{folder / "bad.safetensors"}; });
    EXPECT_TRUE(message.starts_with((folder / "bad.safetensors").string() + ": "))
        << damage.what << ": " << message;
    EXPECT_NE(message.find(damage.message), std::string::npos) << damage.what << ": " << message;
  }
}

TEST(Safetensors, RefusesAFileCutAnywhere) {
  const TemporaryFolder folder;
  write_safetensors(folder / "whole", {{"x", DType::kF32, {2}}}, {std::vector<float>{1, 2}}, {{"k", "v"}});
  const std::string whole = testing::read_bytes(folder / "whole");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "cut", whole.substr(0, size));
    EXPECT_THROW(SafetensorsFile{folder / "cut"}, IoError) << size << " bytes";
  }
}

TEST(Safetensors, SurvivesAnyByteOfTheHeaderChanged) {
  const TemporaryFolder folder;
  write_safetensors(folder / "whole", {{"x", DType::kF32, {2}}, {"y", DType::kF32, {}}},
                    {std::vector<float>{1, 2}, std::vector<float>{3}}, {{"k", "v"}});
  const std::string whole = testing::read_bytes(folder / "whole");
  const CounterRandom random(7, stream_of("damage"));
  for (std::uint64_t trial = 0; trial < 500; ++trial) {
    std::string damaged = whole;
    damaged[random.below(whole.size() - 12, 2 * trial)] = static_cast<char>(random.below(256, 2 * trial + 1));
    write_bytes(folder / "damaged", damaged);
    try {
      const SafetensorsFile file(folder / "damaged");
      for (const auto& [name, info] : file.tensors())
        EXPECT_LE(info.begin + info.bytes, static_cast<Index>(whole.size()));
    } catch (const IoError&) {
      continue;  // refused in order
    }
  }
}

}  // namespace
}  // namespace moeloom
