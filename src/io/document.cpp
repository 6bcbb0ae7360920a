#include "moeloom/io/document.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/mapped_file.hpp"
#include "moeloom/io/text_file.hpp"

#include <algorithm>
#include <limits>

#include "json.hpp"

namespace moeloom {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void refuse(const std::string& origin, const std::string& key, const std::string& expected,
                         const std::string& found) {
  throw IoError(origin + ": key \"" + key + "\": expected " + expected + ", found " + found);
}

/// The value at `key` if `holds` says that it is of the expected kind.
const Json& expect(const Json& object, const std::string& origin, const std::string& key,
                   const std::string& expected, bool (*holds)(const Json&)) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(origin, key, expected, "no such key");
  if (!holds(*found)) refuse(origin, key, expected, described(*found));
  return *found;
}

bool is_index(const Json& value) {
  if (!value.is_number_integer()) return false;
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  return !value.is_number_unsigned() || value.get<std::uint64_t>() <= kLargest;
}
bool is_number(const Json& value) {
  return value.is_number();
}
bool is_boolean(const Json& value) {
  return value.is_boolean();
}
bool is_text(const Json& value) {
  return value.is_string();
}
bool is_object(const Json& value) {
  return value.is_object();
}
bool is_indices(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_index);
}
bool is_numbers(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_number);
}
bool is_numbers_or_null(const Json& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const Json& v) { return v.is_number() || v.is_null(); });
}
bool is_texts(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_text);
}
bool is_objects(const Json& value) {
  return value.is_array() && std::ranges::all_of(value, is_object);
}

}  // namespace

struct Document::Value {
  Json json = Json::object();
};

Document::Document() : value_(std::make_unique<Value>()), origin_("document") {}
Document::Document(const Document& other)
    : value_(std::make_unique<Value>(*other.value_)), origin_(other.origin_) {}
Document& Document::operator=(const Document& other) {
  *value_ = *other.value_;
  origin_ = other.origin_;
  return *this;
}
Document::~Document() = default;

Document Document::read(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

Document Document::parse(const std::string& text, const std::string& origin) {
  Document document;
  document.origin_ = origin;
  document.value_->json = parse_json<Json>(text, origin);
  if (!is_object(document.value_->json))
    throw IoError(origin + ": expected a JSON object, found " + described(document.value_->json));
  return document;
}

bool Document::has(const std::string& key) const {
  const auto found = value_->json.find(key);
  return found != value_->json.end() && !found->is_null();
}

std::vector<std::string> Document::keys() const {
  std::vector<std::string> names;
  for (const auto& item : value_->json.items()) names.push_back(item.key());
  return names;
}

Index Document::integer(const std::string& key) const {
  return expect(value_->json, origin_, key, "an integer of 64 bits", is_index).get<Index>();
}

double Document::number(const std::string& key) const {
  return expect(value_->json, origin_, key, "a number", is_number).get<double>();
}

bool Document::boolean(const std::string& key) const {
  return expect(value_->json, origin_, key, "true or false", is_boolean).get<bool>();
}

std::string Document::text(const std::string& key) const {
  return expect(value_->json, origin_, key, "a string", is_text).get<std::string>();
}

std::vector<Index> Document::integers(const std::string& key) const {
  return expect(value_->json, origin_, key, "an array of integers", is_indices).get<std::vector<Index>>();
}

std::vector<double> Document::numbers(const std::string& key) const {
  return expect(value_->json, origin_, key, "an array of numbers", is_numbers).get<std::vector<double>>();
}

std::vector<std::string> Document::texts(const std::string& key) const {
  return expect(value_->json, origin_, key, "an array of strings", is_texts).get<std::vector<std::string>>();
}

Document Document::object(const std::string& key) const {
  Document inner;
  inner.value_->json = expect(value_->json, origin_, key, "an object", is_object);
  inner.origin_ = origin_ + ": in \"" + key + "\"";
  return inner;
}

std::vector<Document> Document::objects(const std::string& key) const {
  std::vector<Document> inner;
  for (const Json& value : expect(value_->json, origin_, key, "an array of objects", is_objects)) {
    inner.emplace_back().value_->json = value;
    inner.back().origin_ = origin_ + ": in \"" + key + "\"";
  }
  return inner;
}

Index Document::integer_or(const std::string& key, Index fallback) const {
  return has(key) ? integer(key) : fallback;
}
double Document::number_or(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}
bool Document::boolean_or(const std::string& key, bool fallback) const {
  return has(key) ? boolean(key) : fallback;
}
std::string Document::text_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

std::optional<double> Document::number_or_nan(const std::string& key) const {
  if (has(key)) return number(key);
  return value_->json.contains(key) ? std::optional(kNan) : std::nullopt;
}
std::vector<double> Document::numbers_or_nan(const std::string& key) const {
  std::vector<double> numbers;
  if (!value_->json.contains(key)) return numbers;
  const Json list = expect(value_->json, origin_, key, "an array of numbers or null", is_numbers_or_null);
  for (const Json& value : list) numbers.push_back(value.is_null() ? kNan : value.get<double>());
  return numbers;
}

void Document::set(const std::string& key, Index value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, double value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, bool value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, const std::string& value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, const std::vector<Index>& value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, const std::vector<double>& value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, const std::vector<std::string>& value) {
  value_->json[key] = value;
}
void Document::set(const std::string& key, const Document& value) {
  value_->json[key] = value.value_->json;
}
void Document::set(const std::string& key, const std::vector<Document>& value) {
  Json array = Json::array();
  for (const Document& document : value) array.push_back(document.value_->json);
  value_->json[key] = std::move(array);
}
void Document::set_null(const std::string& key) {
  value_->json[key] = nullptr;
}

void Document::erase(const std::string& key) {
  value_->json.erase(key);
}

std::string Document::dump(int indent) const {
  // Generated text may end inside a character: a replacement mark is better than no report.
  const std::string text = value_->json.dump(indent, ' ', false, Json::error_handler_t::replace);
  return indent < 0 ? text : text + "\n";
}

void Document::write(const std::filesystem::path& path) const {
  replace_file(path, dump());
}

}  // namespace moeloom
