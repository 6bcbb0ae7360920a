#include "rates/exchange_rates.hpp"

#include "comm/node_memory.hpp"
#include "comm/transport.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "rates/link_rates.hpp"

namespace moeloom {
namespace {

constexpr Index kColumns = 256;  // of a row: 1 KiB
constexpr Index kSmall = 1, kLarge = 1024;
constexpr Index kMostPairRows = 32768;  // of all pairs of a rank
constexpr double kStreams = 10;  // times as long as a small exchange: then its bytes are what takes the time
constexpr int kFewest = 9, kMost = 25;  // rounds
constexpr double kEnough = 1;           // seconds, of a slow link's

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Lower quartile of rounds on the slowest rank, by the wall: what a rank waits for is part of it.
double seconds_of(const Communicator& comm, const std::function<void()>& work) {
  std::vector<double> seconds;
  double spent = 0;  // the same on every rank
  work();
  while (std::ssize(seconds) < kFewest || (std::ssize(seconds) < kMost && spent < kEnough)) {
    comm.barrier();
    const double start = now();
    work();
    seconds.push_back(comm.all_max(now() - start));
    spent += seconds.back();
  }
  const auto quarter = seconds.begin() + std::ssize(seconds) / 4;
  std::ranges::nth_element(seconds, quarter);
  return *quarter;
}

double others_in(const Communicator& comm) {
  return static_cast<double>(comm.size() - 1);
}

double exchange_of(const Communicator& comm, Index rows_per_pair) {
  const Matrix sent(rows_per_pair * comm.size(), kColumns);
  Matrix received(sent.rows(), kColumns);
  const std::vector<Index> counts(at(comm.size()), rows_per_pair);
  return seconds_of(comm, [&] { comm.all_to_all_rows(sent, counts, received, counts); });
}

/// Of one rank while all of `comm` exchange: t(bytes) = messages * message + bytes / bandwidth. The bandwidth
/// is that between two sizes that stream: a wait that a small message has, and a large one hides, is no part
/// of it.
struct Line {
  double message_seconds = 0;
  double bandwidth = 0;
};
Line exchange_line(const Communicator& comm, double messages) {
  const double small = exchange_of(comm, kSmall);
  Index rows = large_pair_rows(comm.size());
  double large = exchange_of(comm, rows);
  while (large < kStreams * small && 4 * rows * comm.size() <= kMostPairRows)
    large = exchange_of(comm, rows *= 4);
  const double middle = exchange_of(comm, rows / 4);
  const double others = others_in(comm);
  const double bytes_a_row = static_cast<double>(sizeof(float)) * kColumns * others;
  const double seconds_a_row = std::max(large - middle, 0.1 * large) / static_cast<double>(rows - rows / 4);
  return {std::max(small - kSmall * seconds_a_row, 0.0) / messages, bytes_a_row / seconds_a_row};
}

/// Of ranks that signal and wait for each other; 0 where a node's memory cannot be shared.
double meeting_of(const Communicator& node) {
  constexpr int kMeetings = 16;
  try {
    NodeMemory memory(node, 64);
    return seconds_of(node,
                      [&] {
                        for (int i = 0; i < kMeetings; ++i) memory.meet();
                      }) /
           kMeetings;
  } catch (const AgreedError&) {
    return 0;
  }
}

}  // namespace

Index large_pair_rows(Index ranks) {
  return std::clamp<Index>(kMostPairRows / ranks, 4 * kSmall, kLarge);
}

void measure_exchange(const Communicator& world, MachineRates& rates) {
  if (world.size() == 1) return;
  find_slowest_link(world, rates);
  const Communicator node = world.split_by_node();
  // One place of every node meets the same place of the others, so that all ranks share the network.
  const Communicator across = world.split(node.rank(), world.rank());
  const std::vector<std::int64_t> shape = {node.size(), across.size()};
  const std::vector<std::int64_t> all = world.all_gather(std::span(shape));
  bool even = true;
  for (std::size_t i = 0; i < all.size(); ++i) even = even && all[i] == shape[i % 2];
  if (!even) return;  // every rank sees the same table
  if (node.size() > 1) {
    const Line line = exchange_line(node, others_in(node));
    rates.node_message_seconds = line.message_seconds;
    rates.node_bytes_per_second = line.bandwidth;
    rates.meeting_seconds = meeting_of(node);
  }
  rates.network_tcp = tcp_between_nodes(world);
  if (across.size() > 1) {
    const Line line = exchange_line(across, 1);  // all messages are under way together
    rates.network_message_seconds = line.message_seconds;
    rates.network_bytes_per_second = line.bandwidth * static_cast<double>(node.size());
  }
  // Nodes may differ: everyone keeps what the slowest measured.
  for (double* seconds :
       {&rates.node_message_seconds, &rates.meeting_seconds, &rates.network_message_seconds})
    *seconds = world.all_max(*seconds);
  for (double* rate : {&rates.node_bytes_per_second, &rates.network_bytes_per_second})
    *rate = -world.all_max(-*rate);
}

}  // namespace moeloom
