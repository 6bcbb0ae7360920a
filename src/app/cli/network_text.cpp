#include "cli/network_text.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "cli/option_values.hpp"

namespace moeloom {
namespace {

using Unit = std::pair<std::string_view, double>;
constexpr std::array kBandwidths = {Unit("Gbit", 125e6), Unit("Mbit", 125e3), Unit("GB", 1e9),
                                    Unit("MB", 1e6)};
constexpr std::array kTimes = {Unit("ms", 1e-3), Unit("us", 1e-6), Unit("ns", 1e-9), Unit("s", 1.0)};

/// The number before the first unit that the text ends in.
template <std::size_t N>
double read_with_unit(const std::string& text, const std::array<Unit, N>& units) {
  for (const auto& [unit, factor] : units) {
    if (!text.ends_with(unit)) continue;
    double number = 0;
    read_value(text.substr(0, text.size() - unit.size()), number);
    if (number <= 0) throw BadValue("a network is faster than " + text);
    number *= factor;
    if (!std::isfinite(number) || number < std::numeric_limits<double>::min())
      throw BadValue("no network has " + text);
    return number;
  }
  throw BadValue("expected bandwidth and latency as 200Gbit,2us (Gbit, Mbit, GB, MB; s, ms, us, ns)");
}

}  // namespace

NetworkOptions read_network(const std::string& text) {
  const std::vector<std::string> words = split(text, ',');
  if (words.size() != 2)
    throw BadValue("expected bandwidth and latency as 200Gbit,2us (Gbit, Mbit, GB, MB; s, ms, us, ns)");
  return {.bytes_per_second = read_with_unit(words[0], kBandwidths),
          .message_seconds = read_with_unit(words[1], kTimes)};
}

std::string network_text(const NetworkOptions& network) {
  if (network.bytes_per_second == 0) return {};
  return value_text(network.bytes_per_second / 125e6) + "Gbit," + value_text(network.message_seconds * 1e6) +
         "us";
}

}  // namespace moeloom
