#include "io/example_file.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "example_layout.hpp"

namespace moeloom {
namespace {

static_assert(std::endian::native == std::endian::little, "example files are written and read as they lie");

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kReadAtOnce = std::uint64_t{64} << 20;  // of a file that may be larger than memory

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw IoError(path.string() + ": " + what);
}

/// The place must lie inside.
std::uint64_t number_at(Bytes bytes, std::size_t place) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

bool has_mark(Bytes bytes, std::size_t place) {
  return std::memcmp(bytes.data() + place, kExampleMark.data(), kExampleMark.size()) == 0;
}

/// Numbers where they lie. The part must lie inside, at a multiple of their size.
template <typename Number>
std::span<const Number> part_of(Bytes bytes, std::uint64_t begin, std::uint64_t count) {
  return {reinterpret_cast<const Number*>(bytes.data() + begin), count};
}

Bytes between(Bytes bytes, std::uint64_t begin, std::uint64_t end) {
  return bytes.subspan(begin, end - begin);
}

/// The numbers before the checksum, in their order.
struct Numbers {
  std::uint64_t tokens, examples, targets, largest_id, ids_checksum, learned_checksum;

  Numbers(Bytes bytes, std::size_t begin)
      : tokens(number_at(bytes, begin)),
        examples(number_at(bytes, begin + kExampleNumber)),
        targets(number_at(bytes, begin + 2 * kExampleNumber)),
        largest_id(number_at(bytes, begin + 3 * kExampleNumber)),
        ids_checksum(number_at(bytes, begin + 4 * kExampleNumber)),
        learned_checksum(number_at(bytes, begin + 5 * kExampleNumber)) {}
};

std::uint64_t key_bytes_of(Bytes bytes, const std::filesystem::path& path) {
  if (bytes.size() < kExampleStart + kExampleEnd || !has_mark(bytes, 0))
    refuse(path, "this is no file of examples of moeloom");
  if (!has_mark(bytes, bytes.size() - kExampleMark.size()))
    refuse(path, "the file is cut off: it does not end as a file of examples does");
  const std::uint64_t count = number_at(bytes, kExampleMark.size());
  if (count > kMostExampleKeyBytes)
    refuse(path, "expected a key of at most " + std::to_string(kMostExampleKeyBytes) + " bytes, found " +
                     std::to_string(count));
  return count;
}

ExampleLayout layout_of(Bytes bytes, const std::filesystem::path& path) {
  const std::uint64_t key_bytes = key_bytes_of(bytes, path);
  const Numbers numbers(bytes, bytes.size() - kExampleEnd);
  if (numbers.examples == 0) refuse(path, "it holds no example");
  const bool may_lie_inside = numbers.tokens <= bytes.size() && numbers.examples <= bytes.size();
  const ExampleLayout layout(key_bytes, may_lie_inside ? numbers.tokens : 0,
                             may_lie_inside ? numbers.examples : 0);
  if (!may_lie_inside || layout.size != bytes.size())
    refuse(path, "the file is cut off, or its sizes are damaged: " + std::to_string(numbers.tokens) +
                     " tokens in " + std::to_string(numbers.examples) + " examples do not take its " +
                     std::to_string(bytes.size()) + " bytes");
  const Bytes start = between(bytes, 0, layout.ids), table = between(bytes, layout.ends, layout.checksum);
  if (number_at(bytes, layout.checksum) != example_checksum(checksum(start), checksum(table)))
    refuse(path, "the file is damaged: the checksum of its key and table is another one");
  return layout;
}

}  // namespace

Index count_targets(std::span<const std::uint8_t> learned) {
  if (learned.empty()) return 0;
  return std::ssize(learned) - 1 - std::ranges::count(learned.subspan(1), std::uint8_t{0});
}

ExampleFile::ExampleFile(const std::filesystem::path& path) : path_(path), file_(path) {
  const Bytes bytes = file_.bytes();
  const ExampleLayout layout = layout_of(bytes, path);
  const Numbers numbers(bytes, layout.numbers);
  key_.assign(reinterpret_cast<const char*>(bytes.data()) + kExampleStart,
              number_at(bytes, kExampleMark.size()));
  ids_ = part_of<std::uint32_t>(bytes, layout.ids, numbers.tokens);
  learned_ = part_of<std::uint8_t>(bytes, layout.learned, numbers.tokens);
  ends_ = part_of<std::uint64_t>(bytes, layout.ends, numbers.examples);
  targets_ = part_of<std::uint32_t>(bytes, layout.targets, numbers.examples);
  checksum_ = number_at(bytes, layout.checksum);
  if (numbers.largest_id > std::uint64_t{std::numeric_limits<std::int32_t>::max()})
    refuse(path, "expected ids below 2^31, found " + std::to_string(numbers.largest_id));
  largest_id_ = static_cast<std::int32_t>(numbers.largest_id);
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < ends_.size(); begin = ends_[i++]) {
    if (ends_[i] <= begin || ends_[i] > numbers.tokens || ends_[i] - begin > std::uint64_t{UINT32_MAX})
      refuse(path, "example " + std::to_string(i) + " of tokens [" + std::to_string(begin) + ", " +
                       std::to_string(ends_[i]) + ") of " + std::to_string(numbers.tokens));
    if (targets_[i] >= ends_[i] - begin)
      refuse(path, "example " + std::to_string(i) + " of " + std::to_string(ends_[i] - begin) +
                       " tokens has " + std::to_string(targets_[i]) + " targets");
    targets_of_all_ += targets_[i];
  }
  if (begin != numbers.tokens || targets_of_all_ != static_cast<Index>(numbers.targets))
    refuse(path, "its examples do not add up to its tokens and targets");
}

ExampleView ExampleFile::example(Index example) const {
  require(example >= 0 && example < examples(), "an example must lie in its file");
  const std::size_t begin = at(stretch_begin(example)), count = at(length(example));
  return {ids_.subspan(begin, count), learned_.subspan(begin, count)};
}

std::uint64_t ExampleFile::content_checksum() const {
  const Bytes bytes = file_.bytes();
  const ExampleLayout layout(key_.size(), ids_.size(), ends_.size());
  const Numbers numbers(bytes, layout.numbers);
  const std::uint64_t table = moeloom::checksum(between(bytes, layout.ends, layout.numbers));
  const std::array<std::uint64_t, 3> all = {numbers.ids_checksum, numbers.learned_checksum, table};
  return moeloom::checksum(std::as_bytes(std::span(all)));
}

void ExampleFile::check_content() const {
  const Bytes bytes = file_.bytes();
  const ExampleLayout layout(key_.size(), ids_.size(), ends_.size());
  const Numbers numbers(bytes, layout.numbers);
  const auto sum_of = [&](std::uint64_t begin, std::uint64_t end) {
    StreamedChecksum sum;
    for (; begin < end; begin += kReadAtOnce) {
      sum.add(between(bytes, begin, std::min(end, begin + kReadAtOnce)));
      file_.forget();
    }
    return sum.value();
  };
  const char* const damaged = sum_of(layout.ids, layout.learned) != numbers.ids_checksum ? "ids"
                              : sum_of(layout.learned, layout.ends) != numbers.learned_checksum
                                  ? "flags of what is learned"
                                  : nullptr;
  if (damaged != nullptr)
    refuse(path_, std::string("the file is damaged: the checksum of its ") + damaged + " is another one");
}

}  // namespace moeloom
