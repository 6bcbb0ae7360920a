// A text as it was given, made well formed.
#pragma once

#include <string_view>

#include "tokenizer/aligned_text.hpp"

namespace moeloom::tokenizing {

class InputText {
 public:
  /// Borrows `bytes` if they are UTF-8.
  InputText(std::string_view bytes, bool tracked);

  Piece piece() const { return repaired_ ? repaired_->piece() : Piece{.text = bytes_}; }

 private:
  std::string_view bytes_;
  std::optional<AlignedText> repaired_;
};

}  // namespace moeloom::tokenizing
