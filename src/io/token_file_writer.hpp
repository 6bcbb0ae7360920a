// Token ids into a file that TokenSource reads: Megatron's .bin/.idx, or raw integers.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace moeloom {

class SystemFile;

enum class TokenLayout { kMegatron, kRaw };

/// Sequences are added one by one, and memory does not grow with them. The file appears under its name when
/// it is whole; until then PATH.partial and PATH.sequences.partial hold what there is, and a later writer may
/// go on there.
class TokenFileWriter {
 public:
  /// What of both partial files counts.
  struct Position {
    Index tokens = 0;
    Index sequences = 0;
    bool operator==(const Position&) const = default;
  };

  /// bytes_per_token: 2 (uint16) or 4 (int32; raw: uint32). `from`: where a writer stopped, as flush() said;
  /// zeros begin anew. Throws IoError from the system, and where the partial files hold less than `from`.
  TokenFileWriter(std::filesystem::path path, TokenLayout layout, Index bytes_per_token, Position from);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  /// A document is a sequence that begins one and those behind it that do not. Throws IoError for an id that
  /// bytes_per_token cannot hold.
  void add(std::span<const std::uint32_t> sequence, bool begins_document);
  /// Hands everything to the disk.
  Position flush();
  /// Writes the index and gives the files their names. Nothing may be added after it.
  void finish();

 private:
  void write_index() const;

  std::filesystem::path path_;
  TokenLayout layout_;
  Index bytes_per_token_;
  Position position_;
  std::unique_ptr<SystemFile> tokens_, sequences_;
  std::string waiting_tokens_, waiting_sequences_;
  Index tokens_end_ = 0, sequences_end_ = 0;  // bytes in the files
};

/// PATH.idx for PATH.bin, else PATH with .idx behind it.
std::filesystem::path megatron_index_of(const std::filesystem::path& tokens);

}  // namespace moeloom
