// Parsers of what is trained on and of what routers chose: Megatron's index, routing, examples, token files.
#include "base/checksum.hpp"
#include "io/example_file.hpp"
#include "io/example_layout.hpp"
#include "io/megatron_index.hpp"
#include "io/routing_file.hpp"
#include "moeloom/io/token_source.hpp"

#include <algorithm>
#include <cstring>

#include "fuzz/json_words.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"
#include "support/files.hpp"

namespace moeloom::fuzz {
namespace {

using testing::bytes_of_number;

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

// ---- token files -----------------------------------------------------------------------------------------

const std::string kSomeTokens(kTokenBytes, '\1');

/// The first byte is the format; of Megatron's the rest is the index of kSomeTokens.
void run_tokens(std::string_view input) {
  static MemoryFolder folder;
  if (input.empty()) return;
  const auto format = static_cast<TokenFormat>(static_cast<std::uint8_t>(input[0]) % 4);
  const bool has_index = format == TokenFormat::kMegatron;
  if (has_index)
    folder.hold("tokens.idx", input.substr(1));
  else
    folder.remove("tokens.idx");
  folder.hold("tokens.bin", has_index ? kSomeTokens : input.substr(1));
  try_it([&] {
    expect((guess_token_format(folder / "tokens.bin") == TokenFormat::kMegatron) == has_index,
           "an index beside a file says how it is read");
  });
  const TokenSource source(folder / "tokens.bin", format);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.size()));
  source.read(0, source.size(), ids.data());
  source.ends_checksum();
  expect(source.largest_id() == *std::ranges::max_element(ids) && std::ranges::min(ids) >= 0,
         "an id is larger than the largest, or below zero");
}

std::vector<std::string> token_seeds() {
  std::string ids;
  for (std::uint32_t id = 0; id < 80; ++id) ids += bytes_of_number(id);
  return {"\2" + ids,     "\1" + ids,           std::string(1, '\0') + "a text",
          "\1\xff\xff\1", "\2\xff\xff\xff\xff", "\3" + megatron_index(4, 4, {10, 6})};
}

}  // namespace

std::vector<Target> data_targets() {
  return {
      {"megatron_index", run_megatron, megatron_seeds, {"MMIDIDX"}},
      {"routing_file", run_routing, routing_seeds,
       with_json({"moeroute", "\\\"num_experts\\\"", "\\\"tokens\\\"", "\\\"layers\\\"",
                  "\\\"num_experts_per_tok\\\"", "\\\"sequence_length\\\"", "text_hashes", "topk_idx",
                  "topk_weights", "\"I16\"", "\"F16\"", "\"I64\""})},
      {"example_file", run_examples, example_seeds, {"moexampl"}},
      {"token_file", run_tokens, token_seeds, {"\1", "\2", "\3", "MMIDIDX", "\xff\xff\xff\xff", "\x80"}},
  };
}

}  // namespace moeloom::fuzz
