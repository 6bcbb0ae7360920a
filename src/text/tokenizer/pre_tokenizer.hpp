// The pre-tokenizers of tokenizer.json: pieces into smaller ones, no token reaches across two.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokenizer/aligned_text.hpp"
#include "tokenizer/field.hpp"
#include "tokenizer/pattern.hpp"

namespace moeloom::tokenizing {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// By what a character is; each is a match of its own.
enum class CharacterClass { kNumber, kPunctuation, kWhiteSpace };

/// Runs of word characters, and of what is neither such nor white space.
struct Words {};

struct Split {
  std::variant<Pattern, CharacterClass, Words> sought;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};

struct PrefixSpace {};  // a space before what does not begin with one
struct LetterForEachByte {};

struct Metaspace {
  enum class Prepend { kAlways, kNever, kFirst };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
};

using PreTokenizerStep = std::variant<Split, PrefixSpace, LetterForEachByte, Metaspace>;

class PreTokenizer {
 public:
  PreTokenizer() = default;
  /// Throws ConfigError for a type that is not implemented.
  explicit PreTokenizer(const Field& field);

  /// Takes the step away that makes letters of bytes if it is the last, and says whether: a model that takes
  /// bytes needs no letters.
  bool take_last_letters();

  /// Whether a step asks if a piece stands at the input's begin, which needs its origin.
  bool asks_for_begin() const;

  /// use(piece) for each piece that is not empty, from left to right.
  template <typename Use>
  void split(const Piece& piece, const Context& context, const Use& use) const {
    run(piece, context, 0, &call<Use>, &use);
  }

 private:
  using UsePiece = void (*)(const void* use, const Piece& piece);
  template <typename Use>
  static void call(const void* use, const Piece& piece) {
    (*static_cast<const Use*>(use))(piece);
  }

  void add(const Field& field);
  void add_byte_level(const Field& field);
  void add_metaspace(const Field& field);
  void run(const Piece& piece, const Context& context, std::size_t step, UsePiece call,
           const void* use) const;

  std::vector<PreTokenizerStep> steps_;
};

/// {"replacement", "prepend_scheme", "add_prefix_space"}, of a pre-tokenizer or a decoder. Throws ConfigError
/// for a replacement of more than one character and an unknown scheme.
Metaspace metaspace_of(const Field& field);

}  // namespace moeloom::tokenizing
