// Tokenizers with what they must give: the folder "tokenizers" of MOELOOM_TEXT, of ../shared/text beside the
// source tree, or of tests/data/text.
#pragma once

#include "moeloom/io/json_value.hpp"
#include "moeloom/text/tokenizer.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/files.hpp"
#include "support/golden.hpp"

namespace moeloom::testing {

using Ids = std::vector<std::uint32_t>;

/// A model that joins three pairs.
inline constexpr const char* kModel =
    R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "▁": 5, "▁a": 6},
  "merges": ["a b", "ab c", "▁ a"]})";

inline std::filesystem::path tokenizer_root() {
  namespace fs = std::filesystem;
  if (const char* named = std::getenv("MOELOOM_TEXT"); named != nullptr && *named != '\0') {
    if (fs::is_directory(fs::path(named) / "tokenizers")) return fs::path(named) / "tokenizers";
    throw std::runtime_error(std::string("MOELOOM_TEXT=") + named + ": expected a folder with tokenizers");
  }
  const fs::path beside = source_root() / ".." / "shared" / "text" / "tokenizers";
  if (fs::is_directory(beside)) return beside.lexically_normal();
  return source_root() / "tests" / "data" / "text" / "tokenizers";
}

/// Every folder there: one without a tokenizer.json, or without cases, fails when it is read.
inline std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(tokenizer_root()))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// Read once by all tests of a process.
inline const Tokenizer& tokenizer_named(const std::string& name) {
  static std::map<std::string, Tokenizer> known;
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  return known.emplace(name, Tokenizer::load(tokenizer_root() / name / "tokenizer.json")).first->second;
}

inline std::vector<JsonValue> json_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::vector<JsonValue> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(parse_json_value(line, path.string() + ":" + std::to_string(lines.size() + 1)));
  return lines;
}

inline const JsonValue& member(const JsonValue& object, std::string_view key) {
  const JsonValue* found = object.find(key);
  if (found == nullptr) throw std::runtime_error("expected a member " + std::string(key));
  return *found;
}

inline std::vector<std::uint32_t> ids_in(const JsonValue& list) {
  std::vector<std::uint32_t> ids;
  for (const JsonValue& each : *list.array()) ids.push_back(static_cast<std::uint32_t>(*each.integer()));
  return ids;
}

}  // namespace moeloom::testing
