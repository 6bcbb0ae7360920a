#include "fields/data_source.hpp"

#include "io/data_text.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& text) {
  std::error_code ignored;
  return fs::exists(text, ignored);
}

DataSource read_source(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (is_file(text) || colon == std::string::npos) return {text};
  double weight = 0;
  try {
    read_value(text.substr(colon + 1), weight);
  } catch (const BadValue&) {
    return {text};  // a name with a colon, which will not be found
  }
  if (!(weight > 0)) throw BadValue("the weight of " + text.substr(0, colon) + " must be positive");
  return {text.substr(0, colon), weight};
}

}  // namespace

std::vector<DataSource> read_sources(const std::string& text) {
  if (text.empty()) return {};
  if (is_file(text)) return {{text}};
  std::vector<DataSource> sources;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');)
    if (!part.empty()) sources.push_back(read_source(part));
  const auto weighted =
      std::ranges::count_if(sources, [](const DataSource& s) { return s.weight.has_value(); });
  if (weighted != 0 && weighted != std::ssize(sources))
    throw BadValue("of " + std::to_string(sources.size()) + " files " + std::to_string(weighted) +
                   (weighted == 1 ? " has" : " have") +
                   " a weight; give each one, or none: then each is read in proportion to what it holds");
  return sources;
}

std::string sources_text(const std::vector<DataSource>& sources) {
  std::string text;
  for (const DataSource& source : sources) {
    if (!text.empty()) text += ",";
    text += source.file.string();
    if (source.weight) text += ":" + value_text(*source.weight);
  }
  return text;
}

std::string names_of(const std::vector<DataSource>& sources) {
  std::string text;
  for (const DataSource& source : sources)
    text += (text.empty() ? "" : ", ") + source.file.filename().string();
  return text;
}

bool holds_records(const fs::path& file, const std::optional<TokenFormat>& format) {
  constexpr std::array kEndings = {".jsonl", ".ndjson", ".json", ".jsonlines", ".ldjson"};
  if (format) return false;
  if (std::ranges::count(kEndings, data_ending(file)) > 0) return true;
  return token_format(file, std::nullopt) == TokenFormat::kText && begins_as_json(file);
}

}  // namespace moeloom
