#include "cli/host_network.hpp"

#include <map>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr std::array<std::uint8_t, 16> six_of(std::uint8_t net, std::uint8_t host) {
  return {0xfd, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host};
}

HostAddress four(const std::string& interface, std::uint8_t net, std::uint8_t host) {
  return {interface, false, {10, net, 0, host}, 24};
}

HostAddress six(const std::string& interface, std::uint8_t net, std::uint8_t host) {
  return {interface, true, six_of(net, host), 64};
}

const std::vector<HostAddress> kTwo = {four("eth0", 77, 3), four("eth1", 78, 3)};

std::vector<std::string> of(const std::string& list, const std::vector<HostAddress>& addresses) {
  return network_violations({list, {}}, "h2", addresses);
}

TEST(HostNetwork, IsUsableWhereEveryWordOfTheListIsThere) {
  for (const char* list :
       {"eth0", "eth0,eth1", "10.77.0.0/24", "10.77.0.0/24,10.78.0.0/24", "10.0.0.0/8", "10.77.0.2/31", ""})
    EXPECT_TRUE(of(list, kTwo).empty()) << list << ": " << of(list, kTwo).front();
  EXPECT_TRUE(of("fd00:77::/64", {six("eth0", 77, 1)}).size() == 1);  // 0x77 is not 77
  EXPECT_TRUE(of("fd00:4d::/64", {six("eth0", 77, 1), four("eth0", 77, 1)}).empty());
}

TEST(HostNetwork, ThatIsMissingIsNamedWithTheHostAndWhatItHasInstead) {
  const auto missing = of("eth0,eth7", kTwo);
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing[0],
            "MOELOOM_NET=eth0,eth7: host h2 has no interface eth7 that is up; what is up there: eth0 "
            "10.77.0.3/24, eth1 10.78.0.3/24");
  const auto other = of("10.99.0.0/24", kTwo);
  ASSERT_EQ(other.size(), 1U);
  EXPECT_NE(other[0].find("host h2 has no address in the network 10.99.0.0/24"), std::string::npos)
      << other[0];
  EXPECT_EQ(of("10.77.0.4/30", kTwo).size(), 1U);  // .3 is one below it
  EXPECT_NE(of("eth0", {})[0].find("no network is up there"), std::string::npos);
}

TEST(HostNetwork, AWordThatIsNoneIsNamed) {
  for (const char* list : {"eth0,,eth1", "10.77.0.0/33", "10.77.0/24", "10.77.0.0/", "fd00::/129",
                           "eth0, eth1", "an-interface-of-this-length", "fd00:77::1", "10.77.0.0/2x", ","})
    EXPECT_FALSE(of(list, kTwo).empty()) << list;
  EXPECT_NE(of("eth0,,eth1", kTwo)[0].find("\"\" is neither a network nor an interface"), std::string::npos);
}

TEST(HostNetwork, SeveralInterfacesNeedAnIpv4AddressEach) {
  const std::vector<HostAddress> some = {four("eth0", 77, 1), four("eth1", 78, 1), six("eth1", 1, 1),
                                         six("eth2", 2, 1)};
  EXPECT_TRUE(of("eth2", some).empty());
  EXPECT_TRUE(of("eth0,eth1", some).empty());
  const auto one_without = of("eth0,eth2", some);
  ASSERT_EQ(one_without.size(), 1U);
  EXPECT_NE(one_without[0].find("on host h2 eth2 has no IPv4 address"), std::string::npos) << one_without[0];
}

TEST(HostNetwork, OfIpv6IsAtTheInterfaceOfTheFirstHost) {
  const AskedNetworks asked = {"fd00:4d::/64", "eth1"};
  EXPECT_TRUE(network_violations(asked, "h2", std::vector{six("eth1", 77, 1)}).empty());
  const auto other = network_violations(asked, "h2", std::vector{six("eth2", 77, 1)});
  ASSERT_EQ(other.size(), 1U);
  EXPECT_NE(other[0].find("host h2 has fd00:4d::/64 at eth2, the first host at eth1"), std::string::npos)
      << other[0];
}

TEST(HostNetwork, IsAskedForWhereOpenMpiWasToldOfIt) {
  using Variables = std::map<std::string, std::string>;
  const auto asked = [](const Variables& variables) {
    return asked_networks([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  const std::string ours = "MOELOOM_NET", theirs = "OMPI_MCA_btl_tcp_if_include";
  EXPECT_TRUE(asked({{ours, "eth7"}}).list.empty());  // one host: env.sh hands nothing on
  EXPECT_EQ(asked({{ours, "eth0"}, {theirs, "eth0"}}).list, "eth0");
  EXPECT_TRUE(asked({{ours, "eth0"}, {theirs, "eth1"}}).list.empty());
  EXPECT_TRUE(asked({{theirs, "lo"}}).list.empty());
  const AskedNetworks six = asked({{ours, "fd00:77::/64"}, {theirs, "eth1"}});
  EXPECT_EQ(six.list, "fd00:77::/64");
  EXPECT_EQ(six.interface, "eth1");
}

TEST(HostNetwork, OfThisHostCanBeListed) {
  for (const HostAddress& address : addresses_of_this_host()) {
    EXPECT_FALSE(address.interface.empty());
    EXPECT_LE(address.prefix_bits, address.six ? 128 : 32);
    EXPECT_TRUE(network_violations({address.interface, {}}, "here", std::vector{address}).empty());
  }
}

}  // namespace
}  // namespace moeloom
