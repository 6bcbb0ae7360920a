// Parsers of io: JSON, safetensors and their index, Megatron's index, routing files.
#include "base/checksum.hpp"
#include "io/example_file.hpp"
#include "io/example_layout.hpp"
#include "io/megatron_index.hpp"
#include "io/routing_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/safetensors.hpp"

#include <cstring>
#include <functional>

#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"
#include "support/files.hpp"

namespace moeloom::fuzz {
namespace {

using testing::bytes_of_number;

const std::vector<std::string> kJsonWords = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             ":",
                                             ",",
                                             "\"",
                                             "null",
                                             "true",
                                             "false",
                                             "-1",
                                             "0",
                                             "1e400",
                                             "-0.0",
                                             "1e-400",
                                             "NaN",
                                             "9223372036854775807",
                                             "-9223372036854775808",
                                             "9223372036854775808",
                                             "18446744073709551615",
                                             "\\u0000",
                                             "\\ud800",
                                             "\\\"",
                                             "\xef\xbb\xbf",
                                             "\xff"};

std::vector<std::string> with_json(std::vector<std::string> words) {
  words.insert(words.end(), kJsonWords.begin(), kJsonWords.end());
  return words;
}

/// Whether an action answers, or refuses as it may.
void try_it(const std::function<void()>& action) {
  try {
    action();
  } catch (const IoError&) {
  }
}

void ask_everything(const Document& document, int depth) {
  for (const std::string& key : document.keys()) {
    try_it([&] { document.integer(key); });
    try_it([&] { document.number(key); });
    try_it([&] { document.boolean(key); });
    try_it([&] { document.text(key); });
    try_it([&] { document.integers(key); });
    try_it([&] { document.numbers(key); });
    try_it([&] { document.texts(key); });
    try_it([&] { document.numbers_or_nan(key); });
    try_it([&] { document.number_or_nan(key); });
    if (depth == 3) continue;
    try_it([&] { ask_everything(document.object(key), depth + 1); });
    try_it([&] {
      for (const Document& inner : document.objects(key)) ask_everything(inner, depth + 1);
    });
  }
}

void run_json(std::string_view input) {
  const Document document = Document::parse(input, "input");
  ask_everything(document, 0);
  const std::string text = document.dump();
  expect(Document::parse(text, "dump").dump() == text, "a document that was written reads back as another");
}

std::vector<std::string> json_seeds() {
  return {
      "{}", R"({"a": 1, "b": [1, 2.5, -3], "c": {"d": null, "e": [true, false]}, "f": "text \u00e9 \n"})",
      R"({"objects": [{"a": 1}, {"a": 2}], "texts": ["x", ""], "long": 12345678901234567890, "tiny": 1e-310})",
      std::string(70, '[') + std::string(70, ']')};
}

// ---- safetensors -----------------------------------------------------------------------------------------

/// A header as text, a byte 0xFF, data: so that a mutation need not guess the length. Other inputs are files.
std::string safetensors_file_of(std::string_view input) {
  const std::size_t cut = input.find('\xff');
  if (cut == std::string_view::npos || input.empty() || input[0] != '{') return std::string(input);
  return bytes_of_number(std::uint64_t{cut}) + std::string(input.substr(0, cut)) +
         std::string(input.substr(cut + 1));
}

void read_all(const SafetensorsFile& file) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, info] : file.tensors()) {
    expect(static_cast<Index>(file.raw(name).size()) == info.bytes, "raw() has another size");
    expect(info.elements() >= 0 && info.elements() * bytes_of(info.dtype) == info.bytes,
           "a shape has other bytes");
    try_it([&] { file.floats(name); });
    try_it([&] { file.integers(name); });
    specs.push_back({name, info.dtype, info.shape});
  }
  const SafetensorsLayout layout = plan_safetensors(specs, file.metadata());
  expect(layout.tensors.size() == specs.size(), "a plan of a file's tensors has others");
}

void run_safetensors(std::string_view input) {
  static MemoryFile file;
  file.hold(safetensors_file_of(input));
  read_all(SafetensorsFile(file.path()));
}

std::vector<std::string> safetensors_seeds() {
  const std::string two =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  const std::string odd = R"({"x":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                          R"("y":{"dtype":"U8","shape":[0,9],"data_offsets":[8,8]},)"
                          R"("z":{"dtype":"F16","shape":[1,1,1],"data_offsets":[8,10]}})";
  return {two + "\xff" + std::string(22, 'd'), odd + "\xff" + std::string(10, 'd'), "{}\xff",
          bytes_of_number(std::uint64_t{2}) + "{}", bytes_of_number(~std::uint64_t{0}) + "{}"};
}

// ---- the index of shards ---------------------------------------------------------------------------------

/// Two shards that are right; the input is the index.
class ShardFolder {
 public:
  ShardFolder() {
    for (const std::string name : {"a", "b"})
      testing::write_bytes(
          folder_ / (name + ".safetensors"),
          safetensors_file_of("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})" +
                              "\xff" + "1"));
  }
  const std::filesystem::path& with_index(std::string_view text) {
    testing::write_bytes(folder_ / kWeightsIndexFile, text);
    return folder_.path();
  }

 private:
  testing::TemporaryFolder folder_;
};

void run_index(std::string_view input) {
  static ShardFolder shards;
  const std::filesystem::path& path = shards.with_index(input);
  const SafetensorsFolder folder(path);
  for (const std::string& name : folder.names()) folder.info(name);
  for (const SafetensorsFile& file : folder.files())
    expect(file.path().parent_path() == path, "an index led out of its folder");
}

std::vector<std::string> index_seeds() {
  return {R"({"metadata":{"total_size":2},"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})",
          R"({"weight_map":{"a":"a.safetensors"}})",
          R"({"weight_map":{"a":"../a.safetensors"}})",
          R"({"weight_map":{"a":"/etc/passwd"}})",
          R"({"weight_map":{"a":"a.safetensors\u0000/../x"}})",
          R"({"weight_map":{"a":"model.safetensors.index.json"}})"};
}

// ---- Megatron's index ------------------------------------------------------------------------------------

constexpr Index kTokenBytes = 64;

void run_megatron(std::string_view input) {
  static MemoryFile file;
  file.hold(input);
  const Index width = check_megatron_index(file.path(), "tokens.bin", kTokenBytes);
  expect(width == 1 || width == 2 || width == 4, "a token has another width");
}

std::string megatron_index(std::uint8_t type, Index width, const std::vector<std::int32_t>& lengths) {
  std::string tables, pointers;
  std::int64_t begin = 0;
  for (const std::int32_t length : lengths) {
    tables += bytes_of_number(length);
    pointers += bytes_of_number(begin);
    begin += length * width;
  }
  return std::string("MMIDIDX\0\0", 9) + bytes_of_number(std::uint64_t{1}) + bytes_of_number(type) +
         bytes_of_number(std::uint64_t{lengths.size()}) + bytes_of_number(std::uint64_t{2}) + tables +
         pointers + bytes_of_number(std::int64_t{0}) +
         bytes_of_number(static_cast<std::int64_t>(lengths.size()));
}

std::vector<std::string> megatron_seeds() {
  return {megatron_index(1, 1, {60, 4}), megatron_index(4, 4, {16}), megatron_index(8, 2, {1, 0, 31}),
          megatron_index(8, 2, {})};
}

// ---- routing files ---------------------------------------------------------------------------------------

void run_routing(std::string_view input) {
  static MemoryFile memory;
  memory.hold(input);
  const RoutingFile file(memory.path());
  constexpr Index kMostSlots = 1 << 16;  // more are as good and take longer
  if (file.heading().tokens * file.heading().top_k > kMostSlots) return;
  for (Index step = 0; step < std::ssize(file.steps()); ++step)
    for (Index layer = 0; layer < std::ssize(file.heading().layers); ++layer)
      try_it([&] {
        const RecordedRouting routing = file.read(step, layer);
        expect(std::ssize(routing.topk_idx) == file.heading().tokens * file.heading().top_k,
               "slots are missing");
        for (const std::int32_t expert : routing.topk_idx)
          expect(expert >= -1 && expert < file.heading().experts, "an expert that the model has not");
      });
}

std::string routing_file(Index steps) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "routing";
  RoutingFileWriter writer(path,
                           {.model_type = "qwen3_moe",
                            .model_hash = "0123456789abcdef",
                            .layers = {0, 2},
                            .experts = 4,
                            .top_k = 2,
                            .sequence_length = 2,
                            .tokens = 4,
                            .seed = 1},
                           0, steps);
  const RecordedRouting routing{{0, 1, 1, 2, 2, 3, -1, 0}, {0.5f, 0.5f, 1, 0, 0.25f, 0.75f, 0, 1}};
  for (Index step = 0; step < steps; ++step) {
    writer.begin_step(step);
    writer.add_layer(routing);
    writer.add_layer(routing);
    writer.end_step(7);
  }
  return testing::read_bytes(path);
}

std::vector<std::string> routing_seeds() {
  return {routing_file(1), routing_file(3)};
}

// ---- example files ---------------------------------------------------------------------------------------

constexpr std::size_t kNumber = sizeof(std::uint64_t);

std::uint64_t number_at(std::string_view bytes, std::size_t place) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + place, kNumber);
  return value;
}
void set_number(std::string& bytes, std::size_t place, std::uint64_t value) {
  std::memcpy(bytes.data() + place, &value, kNumber);
}
std::uint64_t checksum_of(std::string_view bytes) {
  return checksum(std::as_bytes(std::span(bytes)));
}

/// The checksum of key and table that is right, as far as the file's sizes can be believed.
void mend_example_checksum(std::string& file) {
  if (file.size() < kExampleStart + kExampleEnd) return;
  const std::size_t numbers = file.size() - kExampleEnd;
  const std::uint64_t key = number_at(file, kExampleMark.size());
  const std::uint64_t tokens = number_at(file, numbers), examples = number_at(file, numbers + kNumber);
  if (key > file.size() || tokens > file.size() || examples > file.size()) return;
  const ExampleLayout layout(key, tokens, examples);
  if (layout.size != file.size()) return;
  const std::string_view all = file;
  set_number(file, layout.checksum,
             example_checksum(checksum_of(all.substr(0, layout.ids)),
                              checksum_of(all.substr(layout.ends, layout.checksum - layout.ends))));
}

void run_examples(std::string_view input) {
  static MemoryFile memory;
  std::string bytes(input);
  mend_example_checksum(bytes);
  memory.hold(bytes);
  const ExampleFile file(memory.path());
  Index tokens = 0, targets = 0;
  for (Index i = 0; i < file.examples(); ++i) {
    const ExampleView example = file.example(i);
    expect(std::ssize(example.ids) == file.length(i) && example.learned.size() == example.ids.size(),
           "an example has another length");
    expect(file.targets(i) < file.length(i), "an example has more targets than tokens behind the first");
    volatile std::uint64_t read = 0;
    for (std::size_t t = 0; t < example.ids.size(); ++t) read = read + example.ids[t] + example.learned[t];
    tokens += file.length(i);
    targets += file.targets(i);
  }
  expect(tokens == file.tokens() && targets == file.targets(), "examples do not add up");
  try_it([&] { file.check_content(); });
}

std::string example_file(const std::vector<std::size_t>& lengths, const std::string& key) {
  const testing::TemporaryFolder folder;
  ExampleFileWriter writer(folder / "examples", key);
  for (const std::size_t length : lengths)
    writer.add(Example{std::vector<std::uint32_t>(length, 7), std::vector<std::uint8_t>(length, 1)});
  writer.finish();
  return testing::read_bytes(folder / "examples");
}

std::vector<std::string> example_seeds() {
  return {example_file({1}, ""), example_file({3, 1, 2}, "key"),
          example_file({40, 1, 1, 1, 9}, "a longer key")};
}

}  // namespace

std::vector<Target> io_targets() {
  return {
      {"json", run_json, json_seeds, kJsonWords},
      {"safetensors", run_safetensors, safetensors_seeds,
       with_json({"\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"", "\"F32\"", "\"BF16\"",
                  "\"F16\"", "\"F64\"", "\"I64\"", "\"I32\"", "\"U8\"", "\"F8_E4M3\"", "\xff"})},
      {"index", run_index, index_seeds,
       with_json({"\"weight_map\"", "\"metadata\"", "a.safetensors", "b.safetensors", "../", "/", "\\u0000",
                  ".."})},
      {"megatron_index", run_megatron, megatron_seeds, {"MMIDIDX"}},
      {"routing_file", run_routing, routing_seeds,
       with_json({"moeroute", "\\\"num_experts\\\"", "\\\"tokens\\\"", "\\\"layers\\\"",
                  "\\\"num_experts_per_tok\\\"", "\\\"sequence_length\\\"", "text_hashes", "topk_idx",
                  "topk_weights", "\"I16\"", "\"F16\"", "\"I64\""})},
      {"example_file", run_examples, example_seeds, {"moexampl"}},
  };
}

}  // namespace moeloom::fuzz
