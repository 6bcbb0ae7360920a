#include "fields/network_text.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

/// A number of it is `times` bytes a second, or a second over `parts`: both are whole, so that 15us is the
/// double next to 1.5e-5.
struct Unit {
  std::string_view name;
  double times = 1, parts = 1;

  double value_of(double number) const { return number * times / parts; }
  double number_of(double value) const { return value * parts / times; }
};
constexpr std::array kBandwidths = {Unit{"Gbit", 125e6}, Unit{"Mbit", 125e3}, Unit{"GB", 1e9},
                                    Unit{"MB", 1e6}, Unit{"B"}};
constexpr std::array kTimes = {Unit{"us", 1, 1e6}, Unit{"ms", 1, 1e3}, Unit{"ns", 1, 1e9}, Unit{"s"}};
const std::string kExpected =
    "expected bandwidth and latency as 200Gbit,2us (Gbit, Mbit, GB, MB, B; s, ms, us, ns)";

/// The number before the first unit that the text ends in.
template <std::size_t N>
double read_with_unit(const std::string& text, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    double number = 0;
    read_value(text.substr(0, text.size() - unit.name.size()), number);
    if (number <= 0) throw BadValue("a network is faster than " + text);
    const double value = unit.value_of(number);
    if (!std::isfinite(value) || value < std::numeric_limits<double>::min())
      throw BadValue("no network has " + text);
    return value;
  }
  throw BadValue(kExpected);
}

/// In the first unit, or where that would read back as another number in the last, which is 1.
template <std::size_t N>
std::string text_with_unit(double value, const std::array<Unit, N>& units) {
  const Unit &first = units.front(), &exact = units.back();
  const double number = first.number_of(value);
  const std::string text = value_text(number) + std::string(first.name);
  return first.value_of(number) == value ? text : value_text(value) + std::string(exact.name);
}

}  // namespace

NetworkOptions read_network(const std::string& text) {
  const std::vector<std::string> words = split(text, ',');
  if (words.size() != 2) throw BadValue(kExpected);
  return {.bytes_per_second = read_with_unit(words[0], kBandwidths),
          .message_seconds = read_with_unit(words[1], kTimes)};
}

std::string network_text(const NetworkOptions& network) {
  if (network.bytes_per_second == 0) return {};
  return text_with_unit(network.bytes_per_second, kBandwidths) + "," +
         text_with_unit(network.message_seconds, kTimes);
}

}  // namespace moeloom
