// A text that comes token by token, as it may be shown: whole characters, and nothing of what a stop string
// begins.
#pragma once

#include "text/token_stream.hpp"

#include "words/model_text.hpp"

namespace moeloom {

class TextStream {
 public:
  /// The text ends before the first of `stops`.
  TextStream(const ModelText& model, std::vector<std::string> stops);

  /// -> what may be shown now.
  std::string add(std::int32_t token);
  /// -> what was held back; nothing more comes.
  std::string finish();
  /// Whether a stop string has come.
  bool stopped() const { return stopped_; }
  /// All of it so far, without a stop string.
  const std::string& text() const { return text_; }

 private:
  /// What of it may be shown, now that this came.
  std::string take(const std::string& more, bool last);

  std::optional<TokenStream> tokens_;  // none: ids are bytes
  const std::vector<std::string> stops_;
  std::string text_;
  std::size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace moeloom
