// Parsers of io: JSON, safetensors and their index, manifests.
#include "base/checksum.hpp"
#include "io/manifest.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/safetensors.hpp"

#include "fuzz/json_words.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"
#include "support/files.hpp"

namespace moeloom::fuzz {
namespace {

using testing::bytes_of_number;

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

// ---- manifests -------------------------------------------------------------------------------------------

/// The input with the sum that belongs to its list, where it has one: a stranger can count.
std::string with_right_sum(std::string_view input) {
  Document document = Document::parse(input, kManifestFile);
  try_it([&] {
    const std::string text =
        std::to_string(document.integer("piece_bytes")) + document.object("files").dump(-1);
    document.set("sum", hex_text(checksum(std::as_bytes(std::span(text)))));
  });
  return document.dump();
}

void run_manifest(std::string_view input) {
  static MemoryFolder folder;
  folder.hold("file", "12345");
  folder.hold(kManifestFile, with_right_sum(input));
  const Manifest manifest = Manifest::read(folder.path());
  Index bytes = 0;
  for (const auto& [name, sums] : manifest.files) {
    expect(!__builtin_add_overflow(bytes, sums.bytes, &bytes), "files of more bytes than can be counted");
    size_violation(folder.path(), name, sums.bytes);
  }
  for (const FilePiece& piece : manifest.pieces()) {
    expect(piece.bytes >= 1 && piece.bytes <= manifest.piece_bytes, "a piece has another size");
    bytes -= piece.bytes;
    manifest.sum_of(piece);
    try_it([&] { sum_of_piece(folder.path(), piece); });
  }
  expect(bytes == 0, "pieces do not cover their files");
}

std::vector<std::string> manifest_seeds() {
  const std::string head = R"({"format":1,"sum":"","piece_bytes":)";
  return {head + R"(2,"files":{"file":{"bytes":5,"xxh3":["a","b","c"]},"none":{"bytes":0,"xxh3":[]}}})",
          head + R"(9223372036854775807,"files":{"a":{"bytes":9223372036854775807,"xxh3":["a"]}}})",
          head + R"(4611686018427387905,"files":{"a":{"bytes":9223372036854775807,"xxh3":["a","b"]}}})",
          head + R"(16,"files":{"../file":{"bytes":5,"xxh3":["a"]}}})"};
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
      {"manifest", run_manifest, manifest_seeds,
       with_json({"\"files\"", "\"bytes\"", "\"xxh3\"", "\"piece_bytes\"", "\"format\"", "file", "..", "/",
                  "\"sum\"", "4611686018427387905"})},
  };
}

}  // namespace moeloom::fuzz
