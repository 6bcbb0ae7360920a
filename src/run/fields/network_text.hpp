// A network as one word: "200Gbit,2us".
#pragma once

#include "moeloom/run/options.hpp"

namespace moeloom {

/// Bandwidth of a node in Gbit, Mbit, GB or MB a second, then the seconds of a message in s, ms, us or ns.
/// Throws BadValue that says what was expected.
NetworkOptions read_network(const std::string& text);
/// The same network; empty if none is given.
std::string network_text(const NetworkOptions& network);

}  // namespace moeloom
