// Training tokens from a file, memory-mapped: text as bytes, raw uint16/uint32 (nanoGPT), Megatron .bin/.idx.
// Of this rank alone, no collective: each rank opens the file.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace moeloom {

/// kText: each byte is an id. kU16, kU32: little-endian ids, nothing else. kMegatron: a .bin with its .idx.
enum class TokenFormat { kText, kU16, kU32, kMegatron };
/// "text", "u16", "u32", "megatron".
const char* name_of(TokenFormat format);
/// By name (for Megatron the .bin, the .idx or the prefix of both): .idx beside it (or the path itself ends
/// so) means Megatron, .bin and .u16 mean u16, .u32 means u32, anything else is text. The file need not be
/// there. Throws ConfigError for a .bin that begins with 32-bit ids, which as 16-bit ones would be other
/// tokens and zeros.
TokenFormat guess_token_format(const std::filesystem::path& path);
/// What was asked for, or else guess_token_format().
inline TokenFormat token_format(const std::filesystem::path& path, const std::optional<TokenFormat>& asked) {
  return asked ? *asked : guess_token_format(path);
}

/// One long sequence of token ids; Megatron's documents follow each other in file order. The file stays
/// mapped (mapped_file.hpp). Many threads may read at once.
class TokenSource {
 public:
  /// Throws IoError: missing, empty, a size that is no whole number of tokens, an .idx that is damaged, of
  /// another version or type, or points outside its .bin.
  TokenSource(const std::filesystem::path& path, TokenFormat format);

  /// Tokens; at least 1.
  Index size() const { return size_; }
  /// MappedFile::forget().
  void forget() const { file_.forget(); }
  /// Tokens [begin, begin + count) -> target [count]. Throws ShapeError where they do not lie inside.
  void read(Index begin, Index count, std::int32_t* target) const;
  /// The largest id in the file: one pass, to check against a vocabulary. Throws IoError for an id of 2^31 or
  /// more.
  std::int32_t largest_id() const;
  /// Of the file's size, its first and its last MiB: what tells files apart without a pass over them.
  std::uint64_t ends_checksum() const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  Index size_ = 0;
  Index bytes_per_token_ = 1;
};

}  // namespace moeloom
