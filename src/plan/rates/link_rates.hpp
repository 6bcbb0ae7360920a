// Rates of each host's link, measured between hosts in pairs.
//
// While all hosts exchange, everybody waits for the slowest link, and nothing tells whose it is. In pairs
// that do not share hosts each link works for one pair, and a pair is as fast as the slower of its two. So a
// host's link has the rate of the fastest of its pairs.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "plan/rates/machine_rates.hpp"

#include <optional>
#include <span>

namespace moeloom {

/// The partner of `host` in a round of a tournament in which each two of `hosts` meet once: hosts - 1 rounds,
/// or hosts where their number is odd; none: it rests in this round.
std::optional<Index> partner_of(Index host, Index round, Index hosts);

/// pair_rates [hosts, hosts], bytes a second of each pair as seen from the row's host, 0 where they did not
/// meet -> of each host's link. A pair has the lower of its two numbers.
std::vector<double> link_rates(std::span<const double> pair_rates, Index hosts);

/// Of one rank of each node, both ways at once; the same on each. At most kMostRounds of the tournament.
/// Collective over `leaders`, one rank a node.
std::vector<double> measure_links(const Communicator& leaders);
inline constexpr Index kMostRounds = 8;

/// Fills in the link_* of rates, the same on every rank. Nothing, where fewer than three nodes cannot tell
/// whose link is slow. Collective.
void find_slowest_link(const Communicator& world, MachineRates& rates);

}  // namespace moeloom
