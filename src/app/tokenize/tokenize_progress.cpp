#include "tokenize/tokenize_progress.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

constexpr Index kMost = Index{1} << 58;  // tokens and sequences have up to 8 bytes each

Index count_of(const Document& document, const std::string& origin, const char* key) {
  const Index count = document.integer(key);
  if (count < 0 || count > kMost)
    throw IoError(origin + ": has " + key + " = " + std::to_string(count) + "; expected 0 to " +
                  std::to_string(kMost) + "; remove it to begin anew");
  return count;
}

}  // namespace

Document TokenizeProgress::to_document() const {
  Document document;
  document.set("key", key);
  document.set("file", place.file);
  document.set("offset", place.offset);
  document.set("line", place.line);
  document.set("documents", documents);
  document.set("tokens", position.tokens);
  document.set("sequences", position.sequences);
  return document;
}

TokenizeProgress TokenizeProgress::from(const Document& document, const std::string& origin) {
  const auto count = [&](const char* key) { return count_of(document, origin, key); };
  return {.key = document.text("key"),
          .place = {count("file"), count("offset"), count("line")},
          .documents = count("documents"),
          .position = {count("tokens"), count("sequences")}};
}

}  // namespace moeloom
