#include "moeloom/io/json_value.hpp"

#include <cstdint>
#include <limits>

#include "json.hpp"

namespace moeloom {
namespace {

using Json = nlohmann::ordered_json;

JsonValue taken(Json& json) {
  JsonValue result;
  if (json.is_boolean()) {
    result.value = json.get<bool>();
  } else if (json.is_number_unsigned() &&
             json.get<std::uint64_t>() >
                 static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    result.value = json.get<std::uint64_t>();
  } else if (json.is_number_integer()) {
    result.value = json.get<std::int64_t>();
  } else if (json.is_number()) {
    result.value = json.get<double>();
  } else if (json.is_string()) {
    result.value = std::move(json.get_ref<std::string&>());
  } else if (json.is_array()) {
    JsonValue::Array& array = result.value.emplace<JsonValue::Array>();
    array.reserve(json.size());
    for (Json& each : json) array.push_back(taken(each));
  } else if (json.is_object()) {
    JsonValue::Object& object = result.value.emplace<JsonValue::Object>();
    object.reserve(json.size());
    for (auto& [key, each] : json.get_ref<Json::object_t&>()) object.push_back({key, taken(each)});
  }
  return result;
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  if (const Object* members = object())
    for (const auto& [name, member] : *members)
      if (name == key) return &member;
  return nullptr;
}

JsonValue parse_json_value(std::string_view text, const std::string& origin) {
  Json json = parse_json<Json>(text, origin);
  return taken(json);
}

std::string described(const JsonValue& value) {
  if (value.is_null()) return "null";
  if (value.object() != nullptr) return "an object";
  if (const JsonValue::Array* array = value.array()) return "an array of " + std::to_string(array->size());
  if (const bool* boolean = value.boolean()) return described(Json(*boolean));
  if (const std::int64_t* integer = value.integer()) return described(Json(*integer));
  if (const std::uint64_t* integer = value.large_integer()) return described(Json(*integer));
  if (const double* number = value.number()) return described(Json(*number));
  return described(Json(*value.text()));
}

}  // namespace moeloom
