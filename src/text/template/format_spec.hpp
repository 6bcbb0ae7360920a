// What Python's format specifications say of one value: [[fill]align][sign][#][0][width][group][.precision]
// [type].
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime.hpp"

namespace moeloom::jinja {

inline constexpr std::size_t kMostWidth = 100'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // 0: as is usual for the value
  char sign = 0;   // 0: of negative numbers alone
  bool alternate = false;
  std::size_t width = 0;
  char group = 0;  // ',' or '_' between digits
  std::optional<std::size_t> precision;
  char type = 0;
};

/// usual: where text stands that says nothing of it. `before`: bytes of the text that stay before what '='
/// fills in, a sign and a prefix.
std::string padded(Meter& meter, const std::string& text, const Spec& spec, char usual,
                   std::size_t before = 0);

/// The first letters of a text.
std::string cut_to(const std::string& text, const std::optional<std::size_t>& letters);

/// An integer or a float, with its padding. Throws Failure with Python's words for a type that is not the
/// number's.
std::string formatted_number(Meter& meter, const Value& value, const Spec& spec);

/// What format(value, specification) gives. Throws Failure as Python does.
std::string formatted(Meter& meter, const Value& value, const std::string& specification);

}  // namespace moeloom::jinja
