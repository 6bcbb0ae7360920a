// Training tokens from a file, memory-mapped: text as bytes, raw uint16/uint32 (nanoGPT), Megatron .bin/.idx.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace moeloom {

enum class TokenFormat { kText, kU16, kU32, kMegatron };
/// As --data-format calls it.
const char* name_of(TokenFormat format);
/// Of a path (for Megatron the .bin, the .idx or the prefix of both): .idx beside it (or the path itself ends
/// so) means Megatron, .bin and .u16 mean u16, .u32 means u32, anything else is text. Throws ConfigError for
/// a .bin whose beginning is that of 32-bit ids, which as 16-bit ones would be other tokens and zeros.
TokenFormat guess_token_format(const std::filesystem::path& path);
/// What was asked for, or else that guess.
inline TokenFormat token_format(const std::filesystem::path& path, const std::optional<TokenFormat>& asked) {
  return asked ? *asked : guess_token_format(path);
}

/// One long sequence of token ids; Megatron's documents follow each other in file order.
class TokenSource {
 public:
  /// Throws IoError: missing, empty, a size that is no whole number of tokens, an .idx that is damaged, of
  /// another version or type, or points outside its .bin.
  TokenSource(const std::filesystem::path& path, TokenFormat format);

  Index size() const { return size_; }
  /// MappedFile's.
  void forget() const { file_.forget(); }
  /// [begin, begin + count) -> target, as ids. The range must lie inside.
  void read(Index begin, Index count, std::int32_t* target) const;
  /// The largest id in the file: one pass, to check against a vocabulary. Throws IoError for an id of 2^31 or
  /// more.
  std::int32_t largest_id() const;
  /// Of the size, the first and the last MiB: what tells files apart without a pass over all of them.
  std::uint64_t ends_checksum() const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  Index size_ = 0;
  Index bytes_per_token_ = 1;
};

}  // namespace moeloom
