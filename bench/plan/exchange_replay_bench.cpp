// How far is the cost model's exchange from the program's own collectives, on a network of many ranks?
//
//   bench/moe/simgrid/run.sh            under SimGrid's SMPI: 64 and 256 hosts of a fat tree
//
// Dispatch and combine of the real dispatchers move even rows; no expert computes. The model's two numbers of
// the network, a message and a bandwidth, are measured first between two ranks, as `moeloom calibrate` does.
// In a simulation only messages take time, so that the model's local copies are left out too: under mpirun
// the predictions lack them.
#include "moe/dispatch/dispatcher.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/comm/session.hpp"
#include "plan/cost/exchange_cost.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index tokens = 64, hidden = 1024, top_k = 8, experts_a_rank = 4;
  int samples = 1;  // a simulation repeats itself
  std::string ways = "alltoall,hierarchical", json;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("exchange_replay_bench: predicted beside replayed exchanges of rows");
  bench::add_sizes(known, {{"tokens", &o.tokens, "tokens of a rank"},
                           {"hidden", &o.hidden, "hidden size"},
                           {"top-k", &o.top_k, "experts a token"},
                           {"experts", &o.experts_a_rank, "experts of a rank"}});
  bench::add_row_options(known, o.samples, "exchanges, for a median", o.json);
  known.add_options()("ways", po::value(&o.ways)->default_value(o.ways), "dispatchers, with commas");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.samples < 1) throw std::invalid_argument("--samples is at least 1");
  return o;
}

/// Not std::chrono: a simulator has its time where the C library has the host's.
double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// On the slowest rank.
double seconds_of(const Communicator& comm, const std::function<void()>& work) {
  comm.barrier();
  const double start = now();
  work();
  return comm.all_max(now() - start);
}

double exchange_of(const Communicator& comm, Index rows, Index cols) {
  const Matrix sent(rows * comm.size(), cols);
  Matrix received(sent.rows(), cols);
  const std::vector<Index> counts(at(comm.size()), rows);
  return seconds_of(comm, [&] { comm.all_to_all_rows(sent, counts, received, counts); });
}

/// Between the first rank and the last, which lie as far apart as any: t = message + bytes / bandwidth at two
/// sizes. Every rank then knows.
ExchangeRates measured_network(const Communicator& world) {
  constexpr Index kCols = 256, kLarge = 512;
  const bool measures = world.rank() == 0 || world.rank() == world.size() - 1;
  const Communicator pair = world.split(measures ? 0 : 1, world.rank());
  double small = 0, large = 0;
  if (measures) {
    small = exchange_of(pair, 1, kCols);
    large = exchange_of(pair, kLarge, kCols);
  }
  small = world.all_max(small);
  large = world.all_max(large);
  const double a_row = (large - small) / static_cast<double>(kLarge - 1);
  return {.network_message_seconds = small - a_row,
          .network_bandwidth = sizeof(float) * kCols / a_row,
          .copy_bandwidth = std::numeric_limits<double>::infinity()};
}

/// Every expert the same number of slots: K experts a token, as far apart as they can be.
std::vector<std::int32_t> even_choices(const Options& o, Index experts, Index rank) {
  std::vector<std::int32_t> chosen;
  for (Index t = 0; t < o.tokens; ++t)
    for (Index k = 0; k < o.top_k; ++k)
      chosen.push_back(static_cast<std::int32_t>((rank + t + k * experts / o.top_k) % experts));
  return chosen;
}

/// Throws where a name is none of a dispatcher.
std::vector<DispatcherKind> ways_of(const std::string& names) {
  std::vector<DispatcherKind> ways;
  for (const std::string& name : bench::words(names)) {
    const auto* way =
        std::ranges::find_if(kDispatcherKinds, [&](DispatcherKind each) { return name_of(each) == name; });
    if (way == kDispatcherKinds.end())
      throw std::invalid_argument("unknown way \"" + name + "\"; known: alltoall, shared, hierarchical");
    ways.push_back(*way);
  }
  return ways;
}

struct Replayed {
  double dispatch = 0;
  double combine = 0;
};

Replayed replay(const Options& o, const Communicator& world, DispatcherKind kind) {
  const Index experts = o.experts_a_rank * world.size();
  Dispatcher dispatcher(world, experts, open_dispatcher(kind, world, experts));
  DispatchPlan plan;
  dispatcher.plan(even_choices(o, experts, world.rank()), o.top_k, plan);
  const Matrix tokens(o.tokens, o.hidden);
  Matrix summed(o.tokens, o.hidden);
  RowBuffer rows, outputs;
  const RoundTrip trip{.plan = plan,
                       .tokens = tokens,
                       .rows = rows,
                       .scalars_out = std::nullopt,
                       .results = outputs,
                       .sums = summed};
  std::vector<double> out, back;
  for (int sample = 0; sample < o.samples; ++sample) {
    out.push_back(seconds_of(world, [&] {
      dispatcher.begin(trip);
      dispatcher.await_all(trip);
    }));
    back.push_back(seconds_of(world, [&] {
      dispatcher.send_all_back(trip);
      dispatcher.finish(trip);
    }));
  }
  return {median(out), median(back)};
}

ExchangeCase case_of(const Options& o, const Communicator& world) {
  return {.tokens = o.tokens,
          .hidden = o.hidden,
          .top_k = o.top_k,
          .num_experts = o.experts_a_rank * world.size(),
          .ep = world.size(),
          .ep_on_node = 1};
}

nlohmann::ordered_json row_of(const std::string& way, const char* direction, Index ranks, double predicted,
                              double replayed) {
  std::printf("%5lld %-12s %-8s %14.1f %14.1f %+7.0f%%\n", static_cast<long long>(ranks), way.c_str(),
              direction, 1e6 * predicted, 1e6 * replayed, 100 * (predicted / replayed - 1));
  return {{"ranks", ranks},
          {"dispatcher", way},
          {"direction", direction},
          {"predicted_us", 1e6 * predicted},
          {"replayed_us", 1e6 * replayed},
          {"error", predicted / replayed - 1}};
}

void run(const Options& o) {
  set_threads(1);
  const Communicator world = Communicator::world();
  const ExchangeRates network = measured_network(world);
  const bool speaks = world.rank() == 0;
  if (speaks)
    std::printf("%d ranks; a message %.2f us, %.3g GB/s\n%5s %-12s %-8s %14s %14s %8s\n", world.size(),
                1e6 * network.network_message_seconds, 1e-9 * network.network_bandwidth, "ranks",
                "dispatcher", "", "predicted us", "replayed us", "error");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const DispatcherKind way : ways_of(o.ways)) {
    const std::string name(name_of(way));
    const Replayed replayed = replay(o, world, dispatcher_kind_from_text(name).value());
    if (!speaks) continue;
    const ExchangeCase exchange = case_of(o, world);
    rows.push_back(row_of(name, "dispatch", world.size(),
                          exchange_seconds(dispatch_volume(way, exchange), network, 1), replayed.dispatch));
    rows.push_back(row_of(name, "combine", world.size(),
                          exchange_seconds(combine_volume(way, exchange), network, 1), replayed.combine));
  }
  if (speaks && !o.json.empty()) bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) try {
  const Session session(argc, argv, MpiThreads::kOne);
  if (const auto o = parse(argc, argv)) run(*o);
} catch (const std::exception& error) {
  std::cerr << "exchange_replay_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
