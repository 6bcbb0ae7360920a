#include "words/text_stream.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

/// How much of the end of `text` is the beginning of `stop`.
std::size_t overlap(const std::string& text, const std::string& stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.compare(text.size() - length, length, stop, 0, length) == 0) return length;
  return 0;
}

}  // namespace

TextStream::TextStream(const ModelText& model, std::vector<std::string> stops) : stops_(std::move(stops)) {
  if (const Tokenizer* tokenizer = model.tokenizer()) tokens_.emplace(*tokenizer, true);
}

std::string TextStream::add(std::int32_t token) {
  if (stopped_) return {};
  return take(
      tokens_ ? tokens_->next(static_cast<std::uint32_t>(token)) : std::string(1, static_cast<char>(token)),
      false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  return take(tokens_ ? tokens_->finish() : std::string(), true);
}

std::string TextStream::take(const std::string& more, bool last) {
  const std::size_t before = text_.size();
  text_ += more;
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    const std::size_t from = before > stop.size() ? before - stop.size() : 0;
    if (const std::size_t at = text_.find(stop, from); at != std::string::npos) {
      text_.resize(at);
      stopped_ = true;
    }
    held = std::max(held, overlap(text_, stop));
  }
  const std::size_t end = stopped_ || last ? text_.size() : text_.size() - held;
  const std::size_t begin = std::exchange(shown_, std::max(shown_, end));
  return text_.substr(begin, shown_ - begin);
}

}  // namespace moeloom
