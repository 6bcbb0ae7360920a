#include "hf/config/config_reader.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <functional>

#include "hf/config/says_nothing.hpp"

namespace moeloom {
namespace {

/// Whether the document says this of the key; if not, what it says instead.
std::optional<std::string> other_than(std::monostate, const Document&, const std::string&) {
  return "is set and must be null";
}
std::optional<std::string> other_than(double value, const Document& document, const std::string& key) {
  const double found = document.number(key);
  if (found == value) return std::nullopt;
  return "= " + number_text(found) + " must be " + number_text(value);
}
std::optional<std::string> other_than(bool value, const Document& document, const std::string& key) {
  if (document.boolean(key) == value) return std::nullopt;
  return value ? "= false must be true" : "= true must be false";
}
std::optional<std::string> other_than(const std::string& value, const Document& document,
                                      const std::string& key) {
  const std::string found = document.text(key);
  if (found == value) return std::nullopt;
  return "= \"" + found + "\" must be \"" + value + "\"";
}

template <typename Words>
std::string joined(const Words& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace

std::vector<std::string> ConfigFindings::all() const {
  std::vector<std::string> all = violations;
  if (unknown.empty()) return all;
  std::set<std::string> named = ignored;
  named.insert(unknown.begin(), unknown.end());
  all.push_back(
      "unknown keys: " + joined(unknown, ", ") +
      "; a key that may change the model is not ignored: remove what does not matter, or pass it over "
      "with ignored keys = " +
      joined(named, ","));
  return all;
}

ConfigReader::ConfigReader(Document document, std::string path, ConfigFindings& findings)
    : document_(std::move(document)), path_(std::move(path)), findings_(findings) {}

bool ConfigReader::stated(const std::string& key) {
  asked_.insert(key);
  return std::ranges::count(document_.keys(), key) > 0;
}

bool ConfigReader::has(const std::string& key) {
  asked_.insert(key);
  return document_.has(key);
}

std::optional<double> ConfigReader::meant_by_absence(const std::string& key) const {
  const auto found = std::ranges::find(absent_, key, &std::pair<std::string, double>::first);
  return found == absent_.end() ? std::nullopt : std::optional(found->second);
}

Index ConfigReader::integer(const std::string& key) {
  if (has(key)) return document_.integer(key);
  if (const auto meant = meant_by_absence(key); meant && !stated(key)) return static_cast<Index>(*meant);
  findings_.violations.push_back("key " + path_ + key + " is missing");
  return 1;
}

Index ConfigReader::integer_of_all_layers(const std::string& key, Index layers) {
  if (!has(key) || !document_.is_list(key)) return integer(key);
  const std::vector<Index> entries = document_.integers(key);
  if (entries.empty() || std::ssize(entries) < layers ||
      std::ranges::adjacent_find(entries, std::not_equal_to<>()) != entries.end()) {
    refuse(key + " must say the same of every layer");
    return 1;
  }
  return entries.front();
}

std::vector<Index> ConfigReader::integers_of_layers(const std::string& key, Index layers) {
  if (!has(key) || !document_.is_list(key)) return std::vector<Index>(at(layers), integer(key));
  std::vector<Index> entries = document_.integers(key);
  if (std::ssize(entries) < layers)
    refuse(key + " has " + std::to_string(entries.size()) + " entries for " + std::to_string(layers) +
           " layers");
  entries.resize(at(layers), 1);
  return entries;
}

double ConfigReader::number(const std::string& key) {
  if (has(key)) return document_.number(key);
  findings_.violations.push_back("key " + path_ + key + " is missing");
  return 1;
}

bool ConfigReader::has_value(const std::string& key) {
  if (stated(key) && !has(key))
    findings_.violations.push_back("key " + path_ + key +
                                   " is null; give it a value, or remove it for the fallback");
  return has(key);
}

Index ConfigReader::integer_or(const std::string& key, Index fallback) {
  if (has_value(key)) return document_.integer(key);
  const std::optional<double> meant = meant_by_absence(key);
  return meant ? static_cast<Index>(*meant) : fallback;
}

Index ConfigReader::count_or(const std::string& key, Index fallback) {
  const Index count = integer_or(key, fallback);
  if (count < 1) refuse(key + " = " + std::to_string(count) + " must be at least 1");
  return std::max<Index>(count, 1);
}

double ConfigReader::number_or(const std::string& key, double fallback) {
  return has_value(key) ? document_.number(key) : meant_by_absence(key).value_or(fallback);
}

bool ConfigReader::boolean_or(const std::string& key, bool fallback) {
  if (!stated(key)) return fallback;
  return has(key) && document_.boolean(key);
}

std::string ConfigReader::text_or(const std::string& key, const std::string& fallback) {
  return has_value(key) ? document_.text(key) : fallback;
}

std::optional<std::string> ConfigReader::text_if(const std::string& key) {
  try {
    return has(key) ? std::optional(document_.text(key)) : std::nullopt;
  } catch (const IoError&) {
    return std::nullopt;
  }
}

std::optional<Index> ConfigReader::optional_integer(const std::string& key, std::optional<Index> fallback) {
  if (has(key)) return document_.integer(key);
  if (stated(key)) return std::nullopt;
  const std::optional<double> meant = meant_by_absence(key);
  return meant ? static_cast<Index>(*meant) : fallback;
}

bool ConfigReader::truth_or(const std::string& key, bool fallback) {
  try {
    return boolean_or(key, fallback);
  } catch (const IoError&) {
    return document_.number(key) != 0;
  }
}

std::optional<double> ConfigReader::optional_number(const std::string& key) {
  return has(key) ? std::optional(document_.number(key)) : std::nullopt;
}

std::optional<double> ConfigReader::optional_number_or(const std::string& key, double fallback) {
  return stated(key) ? optional_number(key) : meant_by_absence(key).value_or(fallback);
}

std::vector<Index> ConfigReader::integers(const std::string& key) {
  return has(key) ? document_.integers(key) : std::vector<Index>();
}

std::vector<double> ConfigReader::numbers(const std::string& key) {
  return has(key) ? document_.numbers(key) : std::vector<double>();
}

std::vector<std::string> ConfigReader::texts(const std::string& key) {
  return has(key) ? document_.texts(key) : std::vector<std::string>();
}

ConfigReader ConfigReader::object(const std::string& key) {
  if (!has(key)) findings_.violations.push_back("key " + path_ + key + " is missing");
  return {document_.has(key) ? document_.object(key) : Document(), path_ + key + ".", findings_};
}

void ConfigReader::fixed(const FixedKey& key) {
  if (key.null_is_other && stated(key.key) && !has(key.key)) return refuse(key.key + " is null: " + key.why);
  if (!has(key.key)) return;
  const auto other =
      std::visit([&](const auto& value) { return other_than(value, document_, key.key); }, key.value);
  if (other) refuse(key.key + " " + *other + ": " + key.why);
}

void ConfigReader::none(const std::string& key, const std::string& why) {
  if (has(key) && !document_.object(key).keys().empty()) refuse(key + " must be null or {}: " + why);
}

void ConfigReader::skip(const std::vector<std::string>& keys) {
  asked_.insert(keys.begin(), keys.end());
}

void ConfigReader::refuse_the_rest() {
  for (const std::string& key : document_.keys()) {
    const bool read = key.starts_with('_') || key.starts_with("unsloth_") || asked_.contains(key);
    const bool ignored = findings_.ignored.contains(key) || findings_.ignored.contains(path_ + key);
    if (!read && !ignored && !says_nothing(document_, key)) findings_.unknown.push_back(path_ + key);
  }
}

}  // namespace moeloom
