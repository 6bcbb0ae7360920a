// The post-processors of tokenizer.json: special tokens around the ids, and offsets without white space.
#pragma once

#include "moeloom/text/tokenizer.hpp"

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokenizer/field.hpp"

namespace moeloom::tokenizing {

struct AddAround {
  std::vector<std::uint32_t> before;
  std::vector<std::uint32_t> after;
};

struct TrimOffsets {
  bool keeps_first_space = false;  // which the pre-tokenizer may have put there
};

class PostProcessor {
 public:
  PostProcessor() = default;
  /// Throws ConfigError for a type that is not implemented, and for templates other than special tokens
  /// around the text.
  explicit PostProcessor(const Field& field);

  /// These stand around a text in place of what the file says.
  void add_instead(AddAround around) { added_ = std::move(around); }
  /// The ids that stand before and after a text's own.
  const AddAround& added() const { return added_; }

  bool trims() const { return !trims_.empty(); }
  /// Trims each token's range of `text` by the white space at the ends of its string. string_of: of a token
  /// of the model; none for an added one, whose string is the text itself.
  void trim(std::string_view text, Encoding& encoding,
            const std::function<const std::string*(std::uint32_t)>& string_of) const;

 private:
  void add(const Field& field);
  void add_template(const Field& field);
  void add_around(std::uint32_t before, std::uint32_t after);

  AddAround added_;
  std::vector<TrimOffsets> trims_;
};

}  // namespace moeloom::tokenizing
