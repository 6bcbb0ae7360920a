#include "text/token_stream.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr std::size_t kMany = 64;  // tokens that wait
/// Of those that wait, the share that comes before they are decoded again: the sum of all is then a multiple
/// of the last.
constexpr std::size_t kShareOfWaiting = 16;

/// What the next tokens cannot change of a text that `waiting` tokens give. Behind an unfinished character
/// all may change (three U+FFFD become one character); that no more than its bytes can is used where many
/// tokens wait.
std::size_t certain_bytes(std::string_view text, std::size_t waiting) {
  constexpr std::string_view kReplacement = "\uFFFD";
  constexpr int kMostMissing = 3;
  if (text.ends_with(kReplacement) && waiting < kMany) return 0;
  for (int i = 0; i < kMostMissing && text.ends_with(kReplacement); ++i)
    text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

std::string TokenStream::next(std::uint32_t id) {
  if (left_out(id)) return "";
  ids_.push_back(id);
  if (ids_.size() < next_look_) return "";
  const std::size_t waiting = ids_.size() - context_;
  if (waiting >= kMany) next_look_ = ids_.size() + waiting / kShareOfWaiting;
  const std::string text = decoded();
  const std::size_t certain = certain_bytes(text, waiting);
  if (certain <= given_) return "";
  const std::string fresh = text.substr(given_, certain - given_);
  given_ = certain;
  if (certain < text.size()) return fresh;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = ids_.size();
  given_ = decoded().size();
  next_look_ = 0;
  return fresh;
}

std::string TokenStream::finish() {
  const std::string text = decoded();
  const std::string rest = text.substr(std::min(given_, text.size()));
  ids_.clear();
  context_ = given_ = next_look_ = 0;
  return rest;
}

}  // namespace moeloom
