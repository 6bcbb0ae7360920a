#include "rates/link_rates.hpp"

#include "base/host_name.hpp"
#include "comm/messages.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace moeloom {
namespace {

constexpr std::size_t kBytes = 1 << 20;  // a link's buffers hold less
constexpr int kTries = 2;

double rate_with(const Communicator& leaders, int partner, std::vector<std::byte>& sent,
                 std::vector<std::byte>& received) {
  Messages messages(leaders);
  const auto start = std::chrono::steady_clock::now();
  messages.receive_bytes(partner, received);
  messages.send_bytes(partner, sent);
  messages.finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(kBytes) / std::max(seconds.count(), 1e-9);
}

}  // namespace

std::optional<Index> partner_of(Index host, Index round, Index hosts) {
  // The circle method: the last place stays where it is and the others turn; of an odd number it is nobody's.
  const Index places = hosts + hosts % 2, turning = places - 1;
  const auto met = [&](Index place) { return ((2 * round - place) % turning + turning) % turning; };
  if (host == turning) return round % turning;
  const Index other = met(host);
  if (other != host) return other;
  return turning < hosts ? std::optional(turning) : std::nullopt;
}

std::vector<double> link_rates(std::span<const double> pair_rates, Index hosts) {
  std::vector<double> links(at(hosts), 0);
  for (Index a = 0; a < hosts; ++a)
    for (Index b = 0; b < hosts; ++b)
      if (a != b)
        links[at(a)] =
            std::max(links[at(a)], std::min(pair_rates[at(a * hosts + b)], pair_rates[at(b * hosts + a)]));
  return links;
}

std::vector<double> measure_links(const Communicator& leaders) {
  const Index hosts = leaders.size();
  std::vector<double> mine(at(hosts), 0);
  std::vector<std::byte> sent(kBytes), received(kBytes);
  for (Index round = 0; round < std::min(kMostRounds, hosts - 1 + hosts % 2); ++round) {
    const std::optional<Index> partner = partner_of(leaders.rank(), round, hosts);
    for (int attempt = 0; attempt < kTries; ++attempt) {
      leaders.barrier();
      if (partner)
        mine[at(*partner)] =
            std::max(mine[at(*partner)], rate_with(leaders, static_cast<int>(*partner), sent, received));
    }
  }
  return link_rates(leaders.all_gather(std::span<const double>(mine)), hosts);
}

void find_slowest_link(const Communicator& world, MachineRates& rates) {
  const Communicator node = world.split_by_node();
  const bool leads = node.rank() == 0;
  const Communicator leaders = world.split(leads ? 0 : 1, world.rank());
  std::string slowest;
  std::array<double, 2> found = {0, 0};  // the median, the slowest
  if (leads && leaders.size() >= 3) {
    const std::vector<double> links = measure_links(leaders);
    const std::vector<std::string> hosts = leaders.all_gather_text(host_name());
    const auto least = std::ranges::min_element(links);
    found = {median(links), *least};
    slowest = hosts[at(least - links.begin())];
  }
  rates.link_median_bytes_per_second = world.all_max(found[0]);
  rates.link_slowest_bytes_per_second = world.all_max(found[1]);
  for (const std::string& host : world.all_gather_text(slowest))
    if (!host.empty()) rates.slowest_host = host;
}

}  // namespace moeloom
