// What of the networks that a job is told to use this host has, asked before MPI starts.
//
// Open MPI 4.1 passes over a network that a host does not have, and goes by whatever else it finds, or waits
// for ever; and what it says names neither the host nor the interface.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/environment.hpp"

namespace moeloom {

/// One of an interface that is up, and no link-local one of IPv6.
struct HostAddress {
  std::string interface;
  bool six = false;  // IPv6
  std::array<std::uint8_t, 16> bytes{};
  Index prefix_bits = 0;
};

/// Throws IoError. Loopback is left out.
std::vector<HostAddress> addresses_of_this_host();

struct AskedNetworks {
  std::string list;       // networks (10.0.0.0/24, fd00:77::/64) and interfaces, with commas
  std::string interface;  // by which the first host names an IPv6 network; empty: there is none
};

/// From MOELOOM_NET, where launch/env.sh has told Open MPI of it; an empty list: nothing is asked for, or not
/// of several hosts, or Open MPI was told something else, which it may take in its own way.
AskedNetworks asked_networks(const EnvironmentLookup& lookup);

/// Why the host cannot be part of the job, a sentence each; none: it can.
std::vector<std::string> network_violations(const AskedNetworks& asked, const std::string& host,
                                            std::span<const HostAddress> addresses);

/// The same of this process's environment and host.
std::vector<std::string> network_violations_here();

}  // namespace moeloom
