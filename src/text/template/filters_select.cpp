// Filters that take another filter or test by its name, and the table of all.
#include <algorithm>

#include "runtime.hpp"

namespace moeloom::jinja {
namespace {

const Test& test_named(const std::string& name) {
  const Test* test = find_test(name);
  if (test == nullptr) throw Failure("No test named '" + name + "'.");
  return *test;
}

/// What select and its relatives were given: an attribute perhaps, a test perhaps, the test's arguments.
struct Selection {
  Value path;  // undefined: the item itself
  const Test* test = nullptr;
  Arguments arguments;

  Selection(const Arguments& given, bool by_attribute) {
    std::size_t at = 0;
    if (by_attribute) {
      if (given.positional.empty()) throw Failure("Missing parameter for attribute name");
      path = given.positional[at++];
    }
    if (at < given.positional.size()) {
      const std::string* name = given.positional[at++].text();
      if (name == nullptr) throw Failure("a test is given by its name");
      test = &test_named(*name);
    }
    arguments.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(at),
                                given.positional.end());
    arguments.named = given.named;
  }

  bool takes(Meter& meter, const Value& item) const {
    const Value value = path.is_undefined() ? item : attribute_path(meter, item, path);
    return test == nullptr ? truth(value) : test->holds(meter, value, arguments);
  }
};

/// Jinja looks at nothing else where the value is false: none is as good as an empty list.
Value nothing() {
  return sequence_value({}, Sequence::Kind::kGenerator);
}

template <bool Wanted, bool ByAttribute>
Value select(Meter& meter, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return nothing();
  const Selection selection(arguments, ByAttribute);
  std::vector<Value> items;
  for (Value& item : iterated(meter, value))
    if (selection.takes(meter, item) == Wanted) items.push_back(std::move(item));
  return sequence_value(std::move(items), Sequence::Kind::kGenerator);
}

Value map_attribute(Meter& meter, const Value& value, const Arguments& arguments) {
  const Bound bound("map", arguments, {"attribute", "default"}, 1);
  std::vector<Value> items;
  for (const Value& item : iterated(meter, value)) {
    Value part = attribute_path(meter, item, bound[0]);
    items.push_back(part.is_undefined() && bound.given(1) ? bound[1] : std::move(part));
  }
  return sequence_value(std::move(items), Sequence::Kind::kGenerator);
}

Value map(Meter& meter, const Value& value, const Arguments& arguments) {
  if (!truth(value)) return nothing();
  const bool by_attribute =
      std::ranges::any_of(arguments.named, [](const auto& each) { return each.first == "attribute"; });
  if (arguments.positional.empty() && by_attribute) return map_attribute(meter, value, arguments);
  if (arguments.positional.empty() || arguments.positional[0].text() == nullptr)
    throw Failure("map requires a filter argument");
  const std::string& name = *arguments.positional[0].text();
  const Filter* filter = find_filter(name);
  if (filter == nullptr) throw Failure("No filter named '" + name + "'.");
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  std::vector<Value> items;
  for (const Value& item : iterated(meter, value)) {
    meter.scan(item.text() == nullptr ? 0 : item.text()->size());
    items.push_back(filter->apply(meter, item, rest));
  }
  return sequence_value(std::move(items), Sequence::Kind::kGenerator);
}

template <std::size_t Size>
struct FilterName {
  constexpr FilterName(const char (&name)[Size]) { std::copy_n(name, Size, text); }  // NOLINT: of a literal
  char text[Size];
};

/// Known to Jinja, so an error only where it is reached; no model's template was seen to use it.
template <FilterName Name>
Value refused(Meter&, const Value&, const Arguments&) {
  throw Failure("the filter " + std::string(Name.text) +
                " is refused: of Jinja's filters it is one that templates here "
                "may not use");
}

constexpr Filter kSelectingFilters[] = {
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"map", map},
    {"filesizeformat", refused<"filesizeformat">},
    {"pprint", refused<"pprint">},
    {"random", refused<"random">},
    {"slice", refused<"slice">},
    {"striptags", refused<"striptags">},
    {"urlize", refused<"urlize">},
    {"wordwrap", refused<"wordwrap">},
    {"xmlattr", refused<"xmlattr">},
};

}  // namespace

std::span<const Filter> selecting_filters() {
  return kSelectingFilters;
}

const Filter* find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), sequence_filters(), selecting_filters(), number_filters()}) {
    const auto found = std::ranges::find(filters, name, &Filter::name);
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace moeloom::jinja
