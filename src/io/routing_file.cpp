#include "moeloom/io/routing_file.hpp"

#include "moeloom/base/checksum.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "routing_heading.hpp"
#include "routing_marks.hpp"
#include "routing_planes.hpp"

namespace moeloom {
namespace {

static_assert(std::endian::native == std::endian::little, "routing files are written and read as they lie");

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  throw IoError(origin + ": " + what);
}

/// Bytes of a file, from either end; a stretch that does not lie inside is an error.
class Bytes {
 public:
  Bytes(std::span<const std::byte> bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  std::span<const std::byte> stretch(std::size_t begin, std::size_t count, const char* what) const {
    if (begin > bytes_.size() || count > bytes_.size() - begin)
      refuse(origin_, "the file is cut off, or its sizes are damaged: " + std::string(what) + " has " +
                          std::to_string(count) + " bytes from byte " + std::to_string(begin) + " of " +
                          std::to_string(bytes_.size()));
    return bytes_.subspan(begin, count);
  }
  std::uint64_t number(std::size_t begin, const char* what) const {
    std::uint64_t value = 0;
    std::memcpy(&value, stretch(begin, sizeof value, what).data(), sizeof value);
    return value;
  }
  bool has_mark(std::size_t begin) const {
    return std::memcmp(stretch(begin, kRoutingMark.size(), "a mark").data(), kRoutingMark.data(),
                       kRoutingMark.size()) == 0;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& origin_;
};

/// Where the parts of a file lie.
struct Parts {
  std::size_t heading_end = 0;
  std::size_t table_begin = 0;
  std::size_t checksum_begin = 0;
};

std::string heading_text(const Bytes& bytes, std::size_t size, const std::string& origin) {
  constexpr std::size_t kLeast = kRoutingStart + kRoutingEnd;
  if (size < kLeast || !bytes.has_mark(0)) refuse(origin, "this is no routing file of moeloom");
  if (!bytes.has_mark(size - kRoutingMark.size()))
    refuse(origin, "the file is cut off: it does not end as a routing file does");
  const std::uint64_t length = bytes.number(kRoutingMark.size(), "the length of the heading");
  if (length > kMostRoutingHeadingBytes)
    refuse(origin, "expected a heading of at most " + std::to_string(kMostRoutingHeadingBytes) +
                       " bytes, found " + std::to_string(length));
  const auto text = bytes.stretch(kRoutingStart, length, "the heading");
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

/// The table's place follows from the number of steps behind it.
Parts parts_of(const Bytes& bytes, std::size_t size, std::size_t heading_bytes, std::size_t layers,
               const std::string& origin) {
  Parts parts;
  parts.heading_end = kRoutingStart + heading_bytes;
  parts.checksum_begin = size - kRoutingMark.size() - sizeof(std::uint64_t);
  const std::size_t steps_begin = parts.checksum_begin - sizeof(std::uint64_t);
  const std::uint64_t steps = bytes.number(steps_begin, "the number of steps");
  const std::uint64_t a_step = bytes_of_routing_step(layers);
  if (steps == 0) refuse(origin, "it holds no step");
  if (steps_begin < parts.heading_end || steps > (steps_begin - parts.heading_end) / a_step)
    refuse(origin, "the file is cut off, or its sizes are damaged: a table of " + std::to_string(steps) +
                       " steps does not lie inside it");
  parts.table_begin = steps_begin - steps * a_step;
  return parts;
}

void check_table(const Bytes& bytes, const Parts& parts, const std::string& heading,
                 const std::string& origin) {
  const auto table = bytes.stretch(parts.table_begin, parts.checksum_begin - parts.table_begin, "the table");
  if (bytes.number(parts.checksum_begin, "the checksum") != routing_checksum(heading, table))
    refuse(origin, "the file is damaged: the checksum of its heading and table is another one");
}

/// What the block says is right for its model.
void check_choices(const RecordedRouting& routing, const RoutingHeading& heading, const std::string& origin) {
  const auto top_k = static_cast<std::size_t>(heading.top_k);
  for (std::size_t first = 0; first < routing.topk_idx.size(); first += top_k) {
    const auto chosen = std::span(routing.topk_idx).subspan(first, top_k);
    for (std::size_t k = 0; k < top_k; ++k) {
      if (chosen[k] >= heading.experts)
        refuse(origin, "token " + std::to_string(first / top_k) + " has expert " + std::to_string(chosen[k]) +
                           " of " + std::to_string(heading.experts));
      if (chosen[k] >= 0 && std::ranges::count(chosen.first(k), chosen[k]) > 0)
        refuse(origin, "token " + std::to_string(first / top_k) + " has expert " + std::to_string(chosen[k]) +
                           " twice");
    }
  }
}

}  // namespace

std::uint64_t text_hash(std::span<const std::int32_t> token_ids) {
  return checksum(std::as_bytes(token_ids));
}

RoutingFile::RoutingFile(const std::filesystem::path& path) : path_(path), file_(path) {
  const std::string origin = path.string();
  const Bytes bytes(file_.bytes(), origin);
  const std::string heading = heading_text(bytes, file_.bytes().size(), origin);
  heading_ = routing_heading(heading, origin);
  const std::size_t layers = heading_.layers.size();
  const Parts parts = parts_of(bytes, file_.bytes().size(), heading.size(), layers, origin);
  check_table(bytes, parts, heading, origin);
  checksum_ = bytes.number(parts.checksum_begin, "the checksum");
  std::size_t block_begin = parts.heading_end, at_byte = parts.table_begin;
  const auto next = [&] {
    const std::uint64_t value = bytes.number(at_byte, "the table");
    at_byte += sizeof value;
    return value;
  };
  const std::size_t steps = (parts.checksum_begin - parts.table_begin) / bytes_of_routing_step(layers);
  for (std::size_t step = 0; step < steps; ++step) {
    const auto number = static_cast<Index>(next());
    if (number < 0 || number >= kMostRecordedSteps || (!steps_.empty() && number <= steps_.back().number))
      refuse(origin,
             "numbers of steps must rise from 0 and stay below 2^40, found " + std::to_string(number));
    steps_.push_back({number, next()});
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::uint64_t count = next();
      if (count > parts.table_begin - block_begin)
        refuse(origin, "its sizes are damaged: a block of step " + std::to_string(number) + " has " +
                           std::to_string(count) + " bytes");
      blocks_.push_back({block_begin, count, next()});
      block_begin += count;
    }
  }
  if (block_begin != parts.table_begin)
    refuse(origin, "its sizes are damaged: " + std::to_string(parts.table_begin - block_begin) +
                       " bytes belong to no block");
}

const RoutingFile::Block& RoutingFile::block(Index step, Index layer) const {
  const auto layers = static_cast<Index>(heading_.layers.size());
  require(step >= 0 && step < static_cast<Index>(steps_.size()) && layer >= 0 && layer < layers,
          "a routing file has no such step or layer");
  return blocks_[at(step * layers + layer)];
}

RecordedRouting RoutingFile::read(Index step, Index layer) const {
  const Block& found = block(step, layer);
  const std::string origin = path_.string() + ": step " + std::to_string(steps_[at(step)].number) +
                             ", layer " + std::to_string(heading_.layers[at(layer)]);
  const auto frame = file_.bytes().subspan(found.begin, found.bytes);
  if (moeloom::checksum(frame) != found.checksum) refuse(origin, "is damaged: its checksum is another one");
  RecordedRouting routing = routing_of_planes(frame, heading_.tokens * heading_.top_k, origin);
  check_choices(routing, heading_, origin);
  return routing;
}

}  // namespace moeloom
