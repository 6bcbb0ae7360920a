// Token ids into a file that TokenSource reads: Megatron's .bin/.idx, or raw integers.
#pragma once

#include "io/output_lock.hpp"
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
  /// zeros begin anew. Throws IoError from the system, and where the partial files hold less than `from`;
  /// as require_place_for_tokens(path). Another writer to `path` is the caller's to keep away: tokens_lock().
  TokenFileWriter(std::filesystem::path path, TokenLayout layout, Index bytes_per_token, Position from);
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  /// A document is a sequence that begins one and those behind it that do not. Throws IoError for an id that
  /// bytes_per_token cannot hold, and for 2^31 tokens: the index has 32 bits for a sequence's length.
  void add(std::span<const std::uint32_t> sequence, bool begins_document);
  /// Hands everything to the disk.
  Position flush();
  /// Writes the index and gives the files their names. Nothing may be added after it. Throws IoError.
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

/// Throws ConfigError where a folder has the name of the tokens or of their index: no file replaces one.
void require_place_for_tokens(const std::filesystem::path& tokens);

/// Of whoever looks for what an interrupted writer left, until finish(). Throws ConfigError where another
/// process writes the tokens or their index, IoError from the system.
OutputLock tokens_lock(const std::filesystem::path& tokens);

}  // namespace moeloom
