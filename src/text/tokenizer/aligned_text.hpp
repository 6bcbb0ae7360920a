// A text on its way to ids, and where in the input each byte of it came from.
#pragma once

#include "moeloom/text/utf8.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.hpp"
#include "tokenizer/unicode.hpp"

namespace moeloom::tokenizing {

/// Borrowed; its ends lie between characters.
struct Piece {
  std::string_view text;
  std::size_t begin = 0;               // in the input, of a piece that is part of it as it is
  bool rewritten = false;              // then `begin` means nothing
  const ByteRange* origins = nullptr;  // of each byte of a rewritten piece; none where nobody asked

  /// Its bytes [from, to), which end between characters.
  Piece part(std::size_t from, std::size_t to) const;
  /// Where [from, to) of it came from, in whole characters; from < to. Zeros where nobody asked.
  ByteRange origin(std::size_t from, std::size_t to) const;
  bool begins_input() const { return origin(0, 1).begin == 0; }
};

/// Owned.
struct AlignedText {
  std::string text;
  std::vector<ByteRange> origins;  // of each byte, or none at all

  Piece piece() const { return {text, 0, true, origins.empty() ? nullptr : origins.data()}; }
};

/// What the steps of one encoding share.
struct Context {
  const RegexSpace& space;
  bool tracked = false;        // whether anyone asks where bytes came from
  std::size_t most_bytes = 0;  // of any rewritten text: steps that each double it would fill the memory
};
/// Of encoding or decoding `text`. tracked: rewritten pieces keep the origins of their bytes. The space is
/// borrowed, and of one thread.
Context context_for(std::string_view text, bool tracked, const RegexSpace& space);

/// Writes a text anew from an old one, from its begin to its end.
class Rewriter {
 public:
  Rewriter(const Piece& old, const Context& context);

  /// The old text's bytes [from, to) as they are.
  void keep(std::size_t from, std::size_t to);
  /// Comes from what the old byte at `place` came from.
  void put(std::string_view content, std::size_t place);
  void put(char32_t code_point, std::size_t place);
  /// What stands for the old text from `from` on.
  void put(std::span<const Change> changes, std::size_t from);

  /// Throws ConfigError where it has become too long.
  AlignedText take();

 private:
  void check_length() const;

  const Piece old_;
  const Context& context_;
  AlignedText fresh_;
};

/// The letter of the byte-level alphabet for each byte.
AlignedText with_letters(const Piece& piece, const Context& context);

}  // namespace moeloom::tokenizing
