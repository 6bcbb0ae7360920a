// Text to token ids and back, as Hugging Face's tokenizer.json says.
//
// What is implemented: BPE (of bytes, of characters with byte_fallback) and Unigram, with every normalizer,
// pre-tokenizer, post-processor and decoder that language models' files use; what is not implemented is
// refused by its name. Ids are those of the tokenizers library. No collective.
#pragma once

#include "moeloom/text/utf8.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// Ids and where each came from.
struct Encoding {
  std::vector<std::uint32_t> ids;
  /// Of each id, in bytes of the text given; zeros for ids that stand for none of it.
  std::vector<ByteRange> offsets;
};

/// A value that is cheap to copy; copies share what was read, and nothing has to outlive it. Every function
/// may be called by many threads at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. Throws IoError for what cannot be read or is no JSON, ConfigError with the
  /// member's name for what is not implemented or does not fit together.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  /// What transformers makes of a folder: its tokenizer.json, and from its tokenizer_config.json the tokens
  /// that the other lacks, and whether a text begins with the BOS and ends with the EOS. `ignored`: keys of
  /// the latter that are passed over. Throws as load() does.
  static Tokenizer of_folder(const std::filesystem::path& folder, const std::set<std::string>& ignored = {});
  /// load() from the text of a tokenizer.json; `origin` stands in messages for the file.
  static Tokenizer parse(std::string_view json, const std::string& origin);

  /// Bytes that are no UTF-8 count as U+FFFD. `add_special_tokens`: as the post-processor says. Throws
  /// ConfigError for a text that the file has no answer for (an unk_token that is not in the vocabulary, a
  /// regular expression that runs wild).
  std::vector<std::uint32_t> encode(std::string_view utf8, bool add_special_tokens) const;
  /// encode() with the place of each id in the text. Slower: words seen before are not looked up.
  Encoding encode_with_offsets(std::string_view utf8, bool add_special_tokens) const;
  /// encode() of each text by itself, on all threads of this rank (base/parallel.hpp).
  std::vector<std::vector<std::uint32_t>> encode_all(std::span<const std::string_view> texts,
                                                     bool add_special_tokens) const;

  /// Ids that no token has are left out, so are special tokens where asked. Ill-formed parts become U+FFFD:
  /// an id may stand for a part of a character.
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const;

  /// The largest id + 1, added tokens among them.
  std::uint32_t vocabulary_size() const;
  /// None for a string that no token has.
  std::optional<std::uint32_t> id_of(std::string_view token) const;
  /// The token's string as the file has it; none for an id that no token has.
  std::optional<std::string> token_of(std::uint32_t id) const;
  /// Whether the file calls the token of this id special, as <|endoftext|>.
  bool is_special(std::uint32_t id) const;

 private:
  class State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace moeloom
