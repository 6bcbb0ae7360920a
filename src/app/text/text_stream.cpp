#include "text/text_stream.hpp"

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

bool ends_inside_a_character(const std::string& text) {
  return text.ends_with("\uFFFD");
}

}  // namespace

TextStream::TextStream(const ModelText& model, std::vector<std::string> stops)
    : model_(model), stops_(std::move(stops)) {}

std::string TextStream::show(std::size_t end) {
  const std::size_t from = std::exchange(shown_, std::max(shown_, end));
  return text_.substr(from, shown_ - from);
}

std::string TextStream::add(std::int32_t token) {
  if (stopped_) return {};
  ids_.push_back(token);
  // Decoders look at neighbours, of which one token before is enough to tell what this one adds.
  const std::size_t context = settled_ > 4 ? settled_ - 4 : 0;
  const std::string before = model_.decode(std::span(ids_).subspan(context, settled_ - context));
  const std::string now = model_.decode(std::span(ids_).subspan(context));
  if (!model_.is_bytes() && ends_inside_a_character(now) && ids_.size() - settled_ < 8) return {};
  settled_ = ids_.size();
  const std::size_t common = static_cast<std::size_t>(std::ranges::mismatch(before, now).in2 - now.begin());
  text_ += now.substr(common);
  std::size_t held = 0;
  for (const std::string& stop : stops_) {
    const std::size_t from = shown_ > stop.size() ? shown_ - stop.size() : 0;
    if (const std::size_t at = text_.find(stop, from); at != std::string::npos) {
      text_.resize(at);
      stopped_ = true;
    }
    held = std::max(held, stopped_ ? 0 : overlap(text_, stop));
  }
  return show(text_.size() - (stopped_ ? 0 : held));
}

std::string TextStream::finish() {
  if (!stopped_ && settled_ < ids_.size()) {
    text_ += model_.decode(std::span(ids_).subspan(settled_));
    settled_ = ids_.size();
  }
  return show(text_.size());
}

}  // namespace moeloom
