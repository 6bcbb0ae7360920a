#include "moeloom/io/document.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "json.hpp"

namespace moeloom {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void refuse(const std::string& origin, const std::string& key, const std::string& expected,
                         const std::string& found) {
  throw IoError(origin + ": key \"" + key + "\": expected " + expected + ", found " + found);
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

/// An object, and where each of its names is: the library's ordered object looks through all names for one,
/// and a trainer's state has one for every tensor of every expert.
class Document::Value {
 public:
  explicit Value(Json object = Json::object()) : json_(std::move(object)) { note_places(); }

  const Json& json() const { return json_; }
  const Json* find(const std::string& key) const {
    const auto place = places_.find(key);
    return place == places_.end() ? nullptr : &members()[place->second].second;
  }
  bool contains(const std::string& key) const { return places_.contains(key); }
  /// The value at `key` if `holds` says that it is of the expected kind.
  const Json& expect(const std::string& origin, const std::string& key, const std::string& expected,
                     bool (*holds)(const Json&)) const {
    const Json* found = find(key);
    if (found == nullptr) refuse(origin, key, expected, "no such key");
    if (!holds(*found)) refuse(origin, key, expected, described(*found));
    return *found;
  }

  void set(const std::string& key, Json value) {
    auto& members = json_.get_ref<Json::object_t&>();
    const auto [place, is_new] = places_.try_emplace(key, members.size());
    if (is_new)
      members.emplace_back(key, std::move(value));
    else
      members.begin()[static_cast<std::ptrdiff_t>(place->second)].second = std::move(value);
  }
  void erase(const std::string& key) {
    json_.erase(key);
    note_places();
  }

 private:
  const Json::object_t::Container& members() const { return json_.get_ref<const Json::object_t&>(); }
  void note_places() {
    places_.clear();
    for (std::size_t i = 0; i < members().size(); ++i) places_.emplace(members()[i].first, i);
  }

  Json json_;
  std::map<std::string, std::size_t> places_;
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
  return parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path.string());
}

Document Document::parse(std::string_view text, const std::string& origin) {
  Document document;
  document.origin_ = origin;
  Json json = parse_json<Json>(text, origin);
  if (!is_object(json)) throw IoError(origin + ": expected a JSON object, found " + described(json));
  *document.value_ = Value(std::move(json));
  return document;
}

bool Document::has(const std::string& key) const {
  const Json* found = value_->find(key);
  return found != nullptr && !found->is_null();
}

bool Document::is_list(const std::string& key) const {
  const Json* found = value_->find(key);
  return found != nullptr && found->is_array();
}

std::vector<std::string> Document::keys() const {
  std::vector<std::string> names;
  for (const auto& item : value_->json().items()) names.push_back(item.key());
  return names;
}

Index Document::integer(const std::string& key) const {
  return value_->expect(origin_, key, "an integer of 64 bits", is_index).get<Index>();
}

double Document::number(const std::string& key) const {
  return value_->expect(origin_, key, "a number", is_number).get<double>();
}

bool Document::boolean(const std::string& key) const {
  return value_->expect(origin_, key, "true or false", is_boolean).get<bool>();
}

std::string Document::text(const std::string& key) const {
  return value_->expect(origin_, key, "a string", is_text).get<std::string>();
}

std::vector<Index> Document::integers(const std::string& key) const {
  return value_->expect(origin_, key, "an array of integers", is_indices).get<std::vector<Index>>();
}

std::vector<double> Document::numbers(const std::string& key) const {
  return value_->expect(origin_, key, "an array of numbers", is_numbers).get<std::vector<double>>();
}

std::vector<std::string> Document::texts(const std::string& key) const {
  return value_->expect(origin_, key, "an array of strings", is_texts).get<std::vector<std::string>>();
}

Document Document::object(const std::string& key) const {
  Document inner;
  *inner.value_ = Value(value_->expect(origin_, key, "an object", is_object));
  inner.origin_ = origin_ + ": in \"" + key + "\"";
  return inner;
}

std::vector<Document> Document::objects(const std::string& key) const {
  std::vector<Document> inner;
  for (const Json& value : value_->expect(origin_, key, "an array of objects", is_objects)) {
    *inner.emplace_back().value_ = Value(value);
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
  return value_->contains(key) ? std::optional(kNan) : std::nullopt;
}
std::vector<double> Document::numbers_or_nan(const std::string& key) const {
  std::vector<double> numbers;
  if (!value_->contains(key)) return numbers;
  const Json& list = value_->expect(origin_, key, "an array of numbers or null", is_numbers_or_null);
  for (const Json& value : list) numbers.push_back(value.is_null() ? kNan : value.get<double>());
  return numbers;
}

void Document::set(const std::string& key, Index value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, double value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, bool value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, const std::string& value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, const std::vector<Index>& value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, const std::vector<double>& value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, const std::vector<std::string>& value) {
  value_->set(key, value);
}
void Document::set(const std::string& key, const Document& value) {
  value_->set(key, value.value_->json());
}
void Document::set(const std::string& key, const std::vector<Document>& value) {
  Json array = Json::array();
  for (const Document& document : value) array.push_back(document.value_->json());
  value_->set(key, std::move(array));
}
void Document::set_null(const std::string& key) {
  value_->set(key, nullptr);
}

void Document::erase(const std::string& key) {
  value_->erase(key);
}

std::string Document::dump(int indent) const {
  // Generated text may end inside a character: a replacement mark is better than no report.
  const std::string text = value_->json().dump(indent, ' ', false, Json::error_handler_t::replace);
  return indent < 0 ? text : text + "\n";
}

void Document::write(const std::filesystem::path& path) const {
  replace_file(path, dump());
}

}  // namespace moeloom
