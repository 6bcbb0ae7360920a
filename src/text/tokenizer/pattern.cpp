#include "tokenizer/pattern.hpp"

namespace moeloom::tokenizing {
namespace {

std::variant<std::string, Regex> sought_by(const Field& field) {
  if (const auto literal = field.optional("String")) return literal->text();
  const Field regex = field.member("Regex");
  return Regex(regex.text(), regex.path());
}

}  // namespace

Pattern::Pattern(const Field& field) : sought_(sought_by(field)) {}

std::optional<ByteRange> Matches::found_from(std::size_t from) const {
  if (const Regex* regex = std::get_if<Regex>(&pattern_->sought()))
    return regex->search(text_, from, *space_);
  const std::string& literal = std::get<std::string>(pattern_->sought());
  const std::size_t found = literal.empty() ? std::string_view::npos : text_.find(literal, from);
  if (found == std::string_view::npos) return std::nullopt;
  return ByteRange{found, found + literal.size()};
}

std::optional<ByteRange> Matches::next() {
  while (from_ <= text_.size()) {
    const auto found = found_from(from_);
    if (!found) break;
    if (found->begin == found->end && last_end_ == found->end) {
      if (from_ == text_.size()) break;
      next_code_point(text_, from_);
      continue;
    }
    from_ = found->end;
    last_end_ = found->end;
    return found;
  }
  from_ = text_.size() + 1;
  return std::nullopt;
}

}  // namespace moeloom::tokenizing
