#include "cli/host_network.hpp"

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <map>
#include <memory>
#include <net/if.h>
#include <optional>
#include <set>
#include <utility>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

bool has(const std::string& text, char letter) {
  return text.find(letter) != std::string::npos;
}

struct Network {
  bool six = false;
  std::array<std::uint8_t, 16> bytes{};
  Index prefix_bits = 0;
};

std::optional<Network> network_of(const std::string& word) {
  const std::size_t slash = word.find('/');
  const std::string address = word.substr(0, slash), bits = word.substr(slash + 1);
  Network network;
  network.six = has(address, ':');
  const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), network.prefix_bits);
  if (error != std::errc() || end != bits.data() + bits.size() || network.prefix_bits < 0 ||
      network.prefix_bits > (network.six ? 128 : 32) ||
      inet_pton(network.six ? AF_INET6 : AF_INET, address.c_str(), network.bytes.data()) != 1)
    return std::nullopt;
  return network;
}

bool lies_in(const HostAddress& address, const Network& network) {
  if (address.six != network.six) return false;
  for (Index bit = 0; bit < network.prefix_bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const auto differ = static_cast<unsigned>(address.bytes[byte] ^ network.bytes[byte]);
    if ((differ >> (7 - bit % 8) & 1U) != 0) return false;
  }
  return true;
}

std::string text_of(const HostAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.six ? AF_INET6 : AF_INET, address.bytes.data(), text.data(), text.size());
  return address.interface + " " + text.data() + "/" + std::to_string(address.prefix_bits);
}

std::string what_it_has(std::span<const HostAddress> addresses) {
  std::vector<std::string> words;
  for (const HostAddress& address : addresses) words.push_back(text_of(address));
  return words.empty() ? "no network is up there" : "what is up there: " + joined(words, ", ");
}

/// Of a word that is no network or interface; empty: it is one.
std::string malformed(const std::string& word) {
  const bool network = has(word, '/');
  if (network ? network_of(word).has_value()
              : !word.empty() && word.size() < IFNAMSIZ && !has(word, ':') && !has(word, ' '))
    return {};
  return "\"" + word + "\" is neither a network nor an interface; write 10.0.0.0/24, fd00:77::/64 or eth1, " +
         "and a comma between two";
}

/// Of several interfaces launch/env.sh lets Open MPI take the IPv4 addresses alone: Open MPI 4.1 joins those
/// of IPv6 crosswise, and two hosts wait for each other.
std::string without_ipv4(const std::map<std::string, bool>& has_ipv4) {
  if (has_ipv4.size() > 1)
    for (const auto& [interface, has] : has_ipv4)
      if (!has) return interface + " has no IPv4 address, which each of several networks needs";
  return {};
}

sa_family_t family_of(const ifaddrs& entry) {
  return entry.ifa_addr == nullptr ? sa_family_t{AF_UNSPEC} : entry.ifa_addr->sa_family;
}

HostAddress address_of(const ifaddrs& entry) {
  HostAddress address{.interface = entry.ifa_name, .six = family_of(entry) == AF_INET6};
  std::array<std::uint8_t, 16> mask{};
  if (address.six) {
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr, 16);
    if (entry.ifa_netmask != nullptr)
      std::memcpy(mask.data(), &reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask)->sin6_addr, 16);
  } else {
    std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr, 4);
    if (entry.ifa_netmask != nullptr)
      std::memcpy(mask.data(), &reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask)->sin_addr, 4);
  }
  for (const std::uint8_t byte : mask) address.prefix_bits += std::popcount(byte);
  return address;
}

bool link_local(const HostAddress& address) {
  return address.six && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

}  // namespace

std::vector<HostAddress> addresses_of_this_host() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_io_error("cannot list this host's network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> held(list, freeifaddrs);
  std::vector<HostAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const unsigned up = IFF_UP | IFF_RUNNING;
    if ((entry->ifa_flags & up) != up || (entry->ifa_flags & IFF_LOOPBACK) != 0 ||
        (family_of(*entry) != AF_INET && family_of(*entry) != AF_INET6))
      continue;
    const HostAddress address = address_of(*entry);
    if (!link_local(address)) addresses.push_back(address);
  }
  return addresses;
}

AskedNetworks asked_networks(const EnvironmentLookup& lookup) {
  const std::string own = lookup("MOELOOM_NET").value_or("");
  const std::string theirs = lookup("OMPI_MCA_btl_tcp_if_include").value_or("");
  if (has(own, ':') && !theirs.empty()) return {own, theirs};
  return own == theirs ? AskedNetworks{own, {}} : AskedNetworks{};
}

std::vector<std::string> network_violations(const AskedNetworks& asked, const std::string& host,
                                            std::span<const HostAddress> addresses) {
  if (asked.list.empty()) return {};
  const std::string begin = "MOELOOM_NET=" + asked.list + ": ";
  if (has(asked.list, ' ')) return {begin + "a blank is part of no name; write a list as eth0,eth1"};
  std::vector<std::string> violations;
  std::map<std::string, bool> has_ipv4;  // each interface that is taken
  for (const std::string& word : split(asked.list, ',')) {
    if (const std::string text = malformed(word); !text.empty()) {
      violations.push_back(begin + text);
      continue;
    }
    const std::optional<Network> network = has(word, '/') ? network_of(word) : std::nullopt;
    bool found = false;
    for (const HostAddress& address : addresses) {
      if (network ? !lies_in(address, *network) : address.interface != word) continue;
      found = true;
      has_ipv4[address.interface];
      if (!asked.interface.empty() && address.interface != asked.interface)
        violations.push_back(
            begin + "host " + host + " has " + word + " at " + address.interface + ", the first host at " +
            asked.interface +
            "; Open MPI takes a network of IPv6 by its interface, so name one that all hosts "
            "have alike");
    }
    if (!found)
      violations.push_back(begin + "host " + host + " has no " +
                           (network ? "address in the network " : "interface ") + word + " that is up; " +
                           what_it_has(addresses));
  }
  for (const HostAddress& address : addresses)
    if (const auto it = has_ipv4.find(address.interface); it != has_ipv4.end() && !address.six)
      it->second = true;
  if (const std::string text = without_ipv4(has_ipv4); !text.empty())
    violations.push_back(begin + "on host " + host + " " + text);
  return violations;
}

std::vector<std::string> network_violations_here() {
  const AskedNetworks asked = asked_networks(own_variable);
  if (asked.list.empty()) return {};
  return network_violations(asked, host_name(), addresses_of_this_host());
}

}  // namespace moeloom
