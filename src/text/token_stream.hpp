// The text of tokens that come one by one, as they are generated.
#pragma once

#include "moeloom/text/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace moeloom {

/// Holds back what the next token may still change: a character that is not whole. What next() and finish()
/// give is together what decode() gives for all ids; but where a run of <0x..> tokens (byte_fallback) becomes
/// ill-formed only behind a whole character, decode() takes that character back and a stream cannot. Where no
/// character gets whole for long, text comes in parts that grow with it, so that n tokens take O(n) time.
class TokenStream {
 public:
  TokenStream(Tokenizer tokenizer, bool skip_special_tokens)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  /// The text that became certain with this token; often none.
  std::string next(std::uint32_t id);
  /// The rest, after the last token. The stream then begins anew.
  std::string finish();

 private:
  /// Whether decode() passes over it.
  bool left_out(std::uint32_t id) const {
    return !tokenizer_.token_of(id) || (skip_special_tokens_ && tokenizer_.is_special(id));
  }
  std::string decoded() const { return tokenizer_.decode(ids_, skip_special_tokens_); }

  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::vector<std::uint32_t>
      ids_;                  // first those that gave the last text: a decoder treats a text's first otherwise
  std::size_t context_ = 0;  // how many of ids_ those are
  std::size_t given_ = 0;    // bytes of the text of ids_ that were given away
  std::size_t next_look_ = 0;  // how many ids_ there are when they are decoded again
};

}  // namespace moeloom
