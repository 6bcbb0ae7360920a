#include "moeloom/io/token_source.hpp"

#include "base/checksum.hpp"
#include "io/data_text.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "megatron_index.hpp"

namespace moeloom {
namespace {

constexpr Index kScanBlock = Index{1} << 20;

std::filesystem::path with_suffix(std::filesystem::path path, const char* suffix) {
  path += suffix;
  return path;
}

/// A Megatron data set is named by its .bin, its .idx, or the prefix of both.
std::filesystem::path megatron_file(const std::filesystem::path& path, const char* suffix) {
  const bool names_a_file = path.extension() == ".bin" || path.extension() == ".idx";
  return names_a_file ? std::filesystem::path(path).replace_extension(suffix) : with_suffix(path, suffix);
}

Index raw_token_bytes(TokenFormat format) {
  if (format == TokenFormat::kText) return 1;
  return format == TokenFormat::kU16 ? 2 : 4;
}

template <typename Stored>
std::uint32_t token_at(const std::byte* tokens, Index position) {
  Stored value;
  std::memcpy(&value, tokens + position * static_cast<Index>(sizeof value), sizeof value);
  return value;
}

using TokenAt = std::uint32_t (*)(const std::byte*, Index);

TokenAt reader_of(Index bytes_per_token) {
  if (bytes_per_token == 1) return token_at<std::uint8_t>;
  return bytes_per_token == 2 ? token_at<std::uint16_t> : token_at<std::uint32_t>;
}

/// Whether the file begins with 32-bit ids below 2^18. Among 16-bit ids every second one would be below 4.
bool begins_with_32_bit_ids(const std::filesystem::path& path) {
  constexpr std::size_t kLeast = 64, kMost = 1024;
  const std::string first = first_bytes(path, kMost * sizeof(std::uint32_t));
  std::vector<std::uint32_t> ids(first.size() / sizeof(std::uint32_t));
  if (ids.size() < kLeast) return false;
  std::memcpy(ids.data(), first.data(), ids.size() * sizeof(std::uint32_t));
  return std::ranges::max(ids) < 1 << 18 &&
         std::ranges::any_of(ids, [](std::uint32_t id) { return id % (1 << 16) > 0; });
}

}  // namespace

const char* name_of(TokenFormat format) {
  constexpr const char* kNames[] = {"text", "u16", "u32", "megatron"};
  return kNames[static_cast<std::size_t>(format)];
}

TokenFormat guess_token_format(const std::filesystem::path& path) {
  if (path.extension() == ".idx") return TokenFormat::kMegatron;
  std::error_code ignored;
  if (std::filesystem::exists(megatron_file(path, ".idx"), ignored)) return TokenFormat::kMegatron;
  if (path.extension() == ".u16") return TokenFormat::kU16;
  if (path.extension() == ".u32") return TokenFormat::kU32;
  if (path.extension() != ".bin") return TokenFormat::kText;
  if (begins_with_32_bit_ids(path))
    throw ConfigError({path.string() +
                       " has no .idx beside it and would be read as 16-bit ids, but begins with 32-bit ones: "
                       "choose data format = u32, or data format = u16 if they are what they seem"});
  return TokenFormat::kU16;
}

TokenSource::TokenSource(const std::filesystem::path& path, TokenFormat format)
    : path_(format == TokenFormat::kMegatron ? megatron_file(path, ".bin") : path), file_(path_) {
  const auto file_bytes = static_cast<Index>(file_.bytes().size());
  if (file_bytes == 0) throw IoError(path_.string() + ": expected tokens, found an empty file");
  if (format != TokenFormat::kText) require_ids(path_, file_.bytes());
  bytes_per_token_ = format == TokenFormat::kMegatron
                         ? check_megatron_index(megatron_file(path, ".idx"), path_, file_bytes)
                         : raw_token_bytes(format);
  if (file_bytes % bytes_per_token_ != 0)
    throw IoError(path_.string() + ": expected a whole number of tokens of " +
                  std::to_string(bytes_per_token_) + " bytes, found " + std::to_string(file_bytes) +
                  " bytes");
  size_ = file_bytes / bytes_per_token_;
}

void TokenSource::read(Index begin, Index count, std::int32_t* target) const {
  require(begin >= 0 && count >= 0 && begin <= size_ - count, "tokens to read must lie inside the source");
  const TokenAt token = reader_of(bytes_per_token_);
  const std::byte* tokens = file_.bytes().data();
  for (Index i = 0; i < count; ++i) target[i] = static_cast<std::int32_t>(token(tokens, begin + i));
}

std::int32_t TokenSource::largest_id() const {
  const TokenAt token = reader_of(bytes_per_token_);
  const std::byte* tokens = file_.bytes().data();
  std::vector<std::uint32_t> largest(static_cast<std::size_t>(ceil_div(size_, kScanBlock)));
  parallel_blocks(size_, kScanBlock, [&](Index begin, Index end) {
    std::uint32_t& here = largest[static_cast<std::size_t>(begin / kScanBlock)];
    for (Index i = begin; i < end; ++i) here = std::max(here, token(tokens, i));
  });
  const std::uint32_t id = *std::ranges::max_element(largest);
  if (id > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()))
    throw IoError(path_.string() + ": expected token ids below 2^31, found " + std::to_string(id) +
                  " (a negative id, or tokens of another width?)");
  return static_cast<std::int32_t>(id);
}

std::uint64_t TokenSource::ends_checksum() const {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::size_t end = std::min(bytes.size(), std::size_t{1} << 20);
  const std::array<std::uint64_t, 3> all = {bytes.size(), checksum(bytes.first(end)),
                                            checksum(bytes.last(end))};
  return checksum(std::as_bytes(std::span(all)));
}

}  // namespace moeloom
