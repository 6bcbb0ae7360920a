// Filters of lists and dicts.
#include <algorithm>
#include <set>

#include "letters.hpp"
#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

using Kind = Sequence::Kind;

Value lowered(Meter& meter, const Value& value, bool case_sensitive) {
  const std::string* text = value.text();
  if (text == nullptr || case_sensitive) return value;
  meter.make(text->size());
  return text_value(lower(*text));
}

struct Keyed {
  Value key;
  Value item;
};

/// By the attribute, or the item itself.
std::vector<Keyed> with_keys(Meter& meter, const Value& value, const Value& path, bool case_sensitive) {
  std::vector<Keyed> keyed;
  for (Value& item : iterated(meter, value)) {
    Value key = path.is_undefined() || path.is_none() ? item : attribute_path(meter, item, path);
    keyed.push_back({lowered(meter, key, case_sensitive), std::move(item)});
  }
  return keyed;
}

void sort_keyed(Meter& meter, std::vector<Keyed>& keyed, bool reverse) {
  // Reversed twice, because Python's reverse keeps the order of equal keys.
  if (reverse) std::ranges::reverse(keyed);
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) { return less(meter, a.key, b.key); });
  if (reverse) std::ranges::reverse(keyed);
}

Value items_of(std::vector<Keyed> keyed, Kind kind = Kind::kList) {
  std::vector<Value> items;
  for (Keyed& each : keyed) items.push_back(std::move(each.item));
  return sequence_value(std::move(items), kind);
}

Value sort(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const std::string* paths = bound[2].text();
  if (paths != nullptr && paths->find(',') != std::string::npos)
    throw Failure("sort is implemented for one attribute alone");
  std::vector<Keyed> keyed = with_keys(meter, value, bound[2], bound.flag(1, false));
  sort_keyed(meter, keyed, bound.flag(0, false));
  return items_of(std::move(keyed));
}

Value dictsort(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw Failure("You can only sort by either \"key\" or \"value\"");
  if (value.dict() == nullptr)
    throw Failure(std::string("'") + type_name(value) + "' object has no items to sort");
  std::vector<Keyed> keyed;
  for (const auto& [key, member] : value.dict()->members())
    keyed.push_back({lowered(meter, by == "key" ? key : member, bound.flag(0, false)),
                     sequence_value({key, member}, Kind::kTuple)});
  sort_keyed(meter, keyed, bound.flag(2, false));
  return items_of(std::move(keyed));
}

Value unique(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> items;
  for (Keyed& each : with_keys(meter, value, bound[1], bound.flag(0, false))) {
    scan_key(meter, each.key);
    if (seen.find(each.key) != nullptr) continue;
    seen.set(each.key, kNone);
    items.push_back(std::move(each.item));
  }
  return sequence_value(std::move(items), Kind::kGenerator);
}

/// A tuple whose parts have the names grouper and list.
Value group_value(Value key, std::vector<Value> items) {
  Sequence group =
      *sequence_value({std::move(key), sequence_value(std::move(items))}, Kind::kTuple).sequence();
  group.is_group = true;
  return SequencePtr(std::make_shared<const Sequence>(std::move(group)));
}

Value group_by(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  std::vector<Keyed> keyed;
  for (Value& item : iterated(meter, value)) {
    Value key = attribute_path(meter, item, bound[0]);
    if (key.is_undefined() && bound.given(1)) key = bound[1];
    keyed.push_back({lowered(meter, key, bound.flag(2, false)), std::move(item)});
  }
  sort_keyed(meter, keyed, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> items;
    for (end = begin; end < keyed.size() && equal(meter, keyed[begin].key, keyed[end].key); ++end)
      items.push_back(keyed[end].item);
    const Value own = attribute_path(meter, keyed[begin].item, bound[0]);
    groups.push_back(group_value(own.is_undefined() ? keyed[begin].key : own, std::move(items)));
  }
  return sequence_value(std::move(groups));
}

Value items(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("items", arguments, {});
  if (value.is_undefined()) return sequence_value({}, Kind::kGenerator);
  if (value.dict() == nullptr) throw Failure("Can only get item pairs from a mapping.");
  const Value view = call_method(meter, value, "items", {});
  return sequence_value(view.sequence()->items, Kind::kGenerator);
}

Value list(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("list", arguments, {});
  return sequence_value(iterated(meter, value));
}

Value first(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("first", arguments, {});
  const std::vector<Value> all = iterated(meter, value);
  return all.empty() ? Value() : all.front();
}

Value last(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("last", arguments, {});
  if (const Sequence* generator = value.sequence();
      generator != nullptr && generator->kind == Kind::kGenerator)
    throw Failure("'generator' object is not reversible");
  const std::vector<Value> all = iterated(meter, value);
  return all.empty() ? Value() : all.back();
}

Value reverse(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound none("reverse", arguments, {});
  std::vector<Value> all = iterated(meter, value);
  std::ranges::reverse(all);
  if (value.text() == nullptr) return sequence_value(std::move(all), Kind::kGenerator);
  std::string text;
  for (const Value& letter : all) text += *letter.text();
  return text_value(std::move(text), value.as<Text>()->safe);
}

Value length(Meter&, const Value& value, const Arguments& arguments) {
  const Bound none("length", arguments, {});
  const auto count = length_of(value);
  if (!count) throw Failure(std::string("object of type '") + type_name(value) + "' has no len()");
  return integer_value(static_cast<Integer>(*count));
}

template <bool Least>
Value extreme(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound(Least ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  std::vector<Keyed> keyed = with_keys(meter, value, bound[1], bound.flag(0, false));
  if (keyed.empty()) return {};
  const auto before = [&](const Keyed& a, const Keyed& b) { return less(meter, a.key, b.key); };
  // The first of equals, as Python's.
  if (Least) return std::ranges::min_element(keyed, before)->item;
  return std::ranges::max_element(keyed, before)->item;
}

Value sum(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound.given(1) ? bound[1] : integer_value(0);
  for (const Keyed& each : with_keys(meter, value, bound[0], true))
    total = operate(meter, Operator::kAdd, total, each.key);
  return total;
}

Value batch(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const Integer size = std::clamp<Integer>(bound.integer(0, 1), -1, 100'000);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (Value& item : iterated(meter, value)) {
    if (static_cast<Integer>(row.size()) == size) rows.push_back(sequence_value(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty() && static_cast<Integer>(row.size()) < size && bound.given(1) && !bound[1].is_none()) {
    meter.make(static_cast<std::size_t>(size) * sizeof(Value));
    row.resize(static_cast<std::size_t>(size), bound[1]);
  }
  if (!row.empty()) rows.push_back(sequence_value(std::move(row)));
  return sequence_value(std::move(rows), Kind::kGenerator);
}

Value attribute(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  const std::string name = bound.text(0, "");
  meter.scan(name.size());
  const Value held = attribute_of(meter, value, name);
  // An attribute, never an item.
  if (held.is_undefined() || value.dict() == nullptr || held.is<Method>())
    return held.is_undefined() ? Value() : held;
  return {};
}

constexpr Filter kSequenceFilters[] = {
    {"sort", sort},          {"dictsort", dictsort}, {"unique", unique}, {"groupby", group_by},
    {"items", items},        {"list", list},         {"first", first},   {"last", last},
    {"reverse", reverse},    {"length", length},     {"count", length},  {"min", extreme<true>},
    {"max", extreme<false>}, {"sum", sum},           {"batch", batch},   {"attr", attribute},
};

}  // namespace

std::span<const Filter> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace moeloom::jinja
