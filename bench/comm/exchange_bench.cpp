// How near do the exchanges of a group of hosts come to what their links carry?
//
//   bench/comm/exchange_hosts.sh 4 1gbit --kib 256,1024,4096
//
// Rows to their ranks, the sum of gradients and the gather of weights. The slowest rank's time counts. A
// *bound* is the time in which the fullest link, of those out of and into a node, carries its bytes, at the
// median speed of streams from the first rank to the last that take turns with the exchange. --kib go from a
// rank to each of the others if loads are even; uneven, a quarter to seven quarters of that, drawn at random.
// A result that is wrong ends the program.
#include "comm/messages.hpp"
#include "comm/node_map.hpp"
#include "comm/travelling_sums.hpp"
#include "comm/travelling_weights.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>
#include <optional>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  std::string kib = "256,1024", loads = "even,uneven", exchanges = "rows,sum,gather", json;
  int samples = 30;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("exchange_bench: exchanges of a group beside what its links carry");
  known.add_options()("kib", po::value(&o.kib)->default_value(o.kib), "KiB of a pair of ranks, a list")(
      "loads", po::value(&o.loads)->default_value(o.loads), "of even, uneven")(
      "exchanges", po::value(&o.exchanges)->default_value(o.exchanges), "of rows, sum, gather");
  bench::add_row_options(known, o.samples, "rounds", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

constexpr Index kCols = 256;

/// Whole rows of kCols.
Index floats_of(const std::string& load, Index kib, Index from, Index to) {
  const Index even = std::max<Index>(1, kib) * 1024 / static_cast<Index>(sizeof(float));
  if (load == "even") return even;
  if (load != "uneven") throw std::invalid_argument("unknown load \"" + load + "\"; known: even, uneven");
  const double share =
      CounterRandom(1, static_cast<std::uint64_t>(from)).uniform(static_cast<std::uint64_t>(to));
  return static_cast<Index>(static_cast<double>(even / kCols) * (0.25 + 1.5 * share)) * kCols;
}

/// What travels in one exchange, floats[from][to], itself included.
using Volume = std::vector<std::vector<Index>>;

Volume volume_of(const std::string& exchange, const std::string& load, Index kib, Index ranks) {
  Volume floats(at(ranks), std::vector<Index>(at(ranks)));
  for (Index from = 0; from < ranks; ++from)
    for (Index to = 0; to < ranks; ++to)
      if (exchange == "rows")
        floats[at(from)][at(to)] = floats_of(load, kib, from, to);
      else if (exchange == "sum")
        floats[at(from)][at(to)] = floats_of(load, kib, ranks, to);  // every rank has as much for a shard
      else if (exchange == "gather")
        floats[at(from)][at(to)] = floats_of(load, kib, from, ranks);
      else
        throw std::invalid_argument("unknown exchange \"" + exchange + "\"; known: rows, sum, gather");
  return floats;
}

/// Bytes through the fullest link in its fuller direction. What is gathered has to come to a node once, and
/// what a node adds to a sum has to leave it once.
double link_bytes(const Volume& floats, const NodeMap& nodes, const std::string& exchange) {
  std::vector<Index> out(at(nodes.nodes())), in(at(nodes.nodes()));
  for (Index from = 0; from < std::ssize(floats); ++from)
    for (Index to = 0; to < std::ssize(floats); ++to) {
      const bool again = (exchange == "gather" && nodes.member_of[at(to)] != 0) ||
                         (exchange == "sum" && nodes.member_of[at(from)] != 0);
      if (nodes.same_node(from, to) || again) continue;
      out[at(nodes.node_of[at(from)])] += floats[at(from)][at(to)];
      in[at(nodes.node_of[at(to)])] += floats[at(from)][at(to)];
    }
  const Index most = std::max(*std::ranges::max_element(out), *std::ranges::max_element(in));
  return static_cast<double>(most) * sizeof(float);
}

Index total(std::span<const Index> counts) {
  return std::accumulate(counts.begin(), counts.end(), Index{0});
}

std::vector<Index> rows_of(std::vector<Index> floats) {
  for (Index& count : floats) count /= kCols;
  return floats;
}

/// One exchange of a rank and its buffers.
class Exchange {
 public:
  Exchange(const std::string& kind, const Volume& floats, Index rank)
      : kind_(kind), mine_(floats[at(rank)]), rank_(rank) {
    for (const auto& from : floats) theirs_.push_back(from[at(rank)]);
    // A gather's counts are what each rank has.
    if (kind == "gather") mine_ = theirs_;
    sent_.assign(at(total(mine_)), static_cast<float>(rank));
    received_.resize(at(total(theirs_)));
  }
  void run(const Communicator& ranks) {
    if (kind_ == "rows")
      ranks.all_to_all_rows({sent_.data(), std::ssize(sent_) / kCols, kCols}, rows_of(mine_),
                            {received_.data(), std::ssize(received_) / kCols, kCols}, rows_of(theirs_));
    else if (kind_ == "sum")
      run_sum(ranks);
    else
      run_gather(ranks);
  }
  void check(Index ranks) {
    if (kind_ == "sum") {
      const auto sum = static_cast<float>(ranks * (ranks - 1) / 2);
      require(std::ranges::all_of(shard(), [&](float value) { return value == sum; }), "a wrong sum");
      return;
    }
    auto next = received_.begin();
    for (std::size_t from = 0; from < theirs_.size(); ++from)
      for (Index i = 0; i < theirs_[from]; ++i)
        require(*next++ == static_cast<float>(from), "a wrong number has come");
  }
  /// Before a run: what a gather begins with, and nothing of the last run's.
  void clear() {
    std::ranges::fill(received_, -1.0f);
    if (kind_ == "sum") std::ranges::fill(shard(), static_cast<float>(rank_));
    if (kind_ != "gather") return;
    const Index begin = total(std::span(theirs_).first(at(rank_)));
    std::fill_n(received_.begin() + begin, theirs_[at(rank_)], static_cast<float>(rank_));
  }

 private:
  /// Of a sum, what this rank owns.
  std::span<float> shard() {
    return std::span(sent_).subspan(at(total(std::span(mine_).first(at(rank_)))), at(mine_[at(rank_)]));
  }
  void run_sum(const Communicator& ranks) {
    offsets_.assign(1, 0);
    for (const Index count : mine_) offsets_.push_back(offsets_.back() + count);
    sums_.begin({.ranks = &ranks,
                 .gradients = std::as_writable_bytes(std::span(sent_)),
                 .offsets = offsets_,
                 .done = [] {}});
    sums_.finish();
  }
  void run_gather(const Communicator& ranks) {
    TravellingWeights::Stretched stretch{.ranks = &ranks, .parts = {}};
    float* next = received_.data();
    for (const Index count : theirs_) {
      stretch.parts.push_back(std::as_writable_bytes(std::span(next, at(count))));
      next += count;
    }
    weights_.begin(std::move(stretch));
    weights_.await(0);
  }

  std::string kind_;
  std::vector<Index> mine_, theirs_, offsets_;
  Index rank_;
  std::vector<float> sent_, received_;
  TravellingSums sums_{1};
  TravellingWeights weights_{1};
};

/// A message from the first rank to the last, and a word back.
double stream_seconds(const Communicator& world, Index floats) {
  const int last = world.size() - 1;
  std::vector<float> message(at(floats)), word(1);
  Messages messages(world);
  return slowest_seconds(world, [&] {
    if (world.rank() == last) {
      messages.receive(0, message);
      messages.wait_for(0, 1);
      messages.send(0, word);
    } else if (world.rank() == 0) {
      messages.receive(last, word);
      messages.send(last, message);
    }
    messages.finish();
  });
}

void measure(const Options& o, const Communicator& world, const NodeMap& nodes, const std::string& kind,
             const std::string& load, Index kib, nlohmann::ordered_json& rows) {
  const Volume floats = volume_of(kind, load, kib, world.size());
  const double bytes = link_bytes(floats, nodes, kind);
  Exchange exchange(kind, floats, world.rank());
  const auto turn = [&](std::size_t contender) {
    if (contender == 0) return stream_seconds(world, static_cast<Index>(bytes) / 4);
    exchange.clear();
    const double taken = slowest_seconds(world, [&] { exchange.run(world); });
    exchange.check(world.size());
    return taken;
  };
  std::vector<Samples> seconds = take_turns(2, o.samples, turn);
  const double bound = median(seconds[0]);
  if (world.rank() == 0)
    std::printf("%-6s %-6s %6lld  %8.2f %7.1f", kind.c_str(), load.c_str(), static_cast<long long>(kib),
                1e3 * bound, 1e-6 * bytes / bound);
  for (double& sample : seconds[1]) sample /= bound;
  const Spread over = spread_of(seconds[1]);
  if (world.rank() == 0) std::printf("   %5.2f (%5.2f to %5.2f)\n", over.median, over.p10, over.p90);
  rows.push_back({{"exchange", kind},
                  {"load", load},
                  {"kib", kib},
                  {"bound_seconds", bound},
                  {"over_bound", {{"median", over.median}, {"p10", over.p10}, {"p90", over.p90}}}});
}

void run(const Options& o) {
  const Communicator world = Communicator::world();
  world.learn_nodes();
  require(world.size() > 1, "exchange_bench needs two ranks and more");
  const NodeMap nodes = find_nodes(world);
  if (nodes.nodes() == 1 && world.rank() == 0)
    std::puts("one node: no link is between the ranks, so bounds mean nothing");
  if (world.rank() == 0) {
    std::printf("%d ranks on %lld nodes, %s\n", world.size(), static_cast<long long>(nodes.nodes()),
                bench::environment_line(1).c_str());
    std::puts("                  bound, ms    MB/s   exchange / bound: median (p10 to p90)");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::string& kind : bench::words(o.exchanges))
    for (const std::string& load : bench::words(o.loads))
      for (const std::string& kib : bench::words(o.kib))
        measure(o, world, nodes, kind, load, std::stoll(kib), rows);
  if (world.rank() == 0) bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = parse(argc, argv)) run(*o);
} catch (const std::exception& error) {
  std::fprintf(stderr, "exchange_bench: %s\n", error.what());
  moeloom::abort_all_ranks(1);
  return 1;
}
