// How much bookkeeping does an exchange ask of one rank as ranks grow? The arithmetic of DispatchPlan alone,
// with simulated routing: no rows, no MPI, every rank's choices drawn here.
//
//   build/bench/plan_scaling_bench                    ep = 2..1024, E = 1024, T = 4096, K = 8
//
// Sending (order of leaving, rows by rank) and receiving (rows by source, order of landing) are timed apart
// and together, and beside them what takes the place of receiving where rows land at once: each slot's row
// on the rank that holds its expert. It should grow no faster than ep + E, and stay under 5 ms at ep = 1024.
#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/measure/paired.hpp"

#include <cstdio>
#include <optional>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index experts = 1024, tokens = 4096, top_k = 8, most_ranks = 1024;
  int samples = 21;
  std::string json;
};

std::optional<Options> parse(int argc, char** argv) {
  Options o;
  boost::program_options::options_description known(
      "plan_scaling_bench: bookkeeping of an exchange by ranks");
  bench::add_sizes(known, {{"experts", &o.experts, "experts of a layer"},
                           {"tokens", &o.tokens, "tokens of a rank"},
                           {"top-k", &o.top_k, "experts a token"},
                           {"ranks", &o.most_ranks, "the most ranks of ep"}});
  bench::add_row_options(known, o.samples, "measured plans", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.top_k < 1 || o.top_k > o.experts || o.samples < 1)
    throw std::invalid_argument("top-k must be between 1 and --experts, and --samples at least 1");
  return o;
}

/// K different experts a token: a random first one, then steps of an odd stride.
std::vector<std::int32_t> simulated_choices(const Options& o) {
  const CounterRandom random(1, stream_of("routing"));
  std::vector<std::int32_t> chosen;
  for (Index t = 0; t < o.tokens; ++t) {
    const auto first = static_cast<Index>(random.bits(static_cast<std::uint64_t>(t)) %
                                          static_cast<std::uint64_t>(o.experts));
    for (Index k = 0; k < o.top_k; ++k)
      chosen.push_back(static_cast<std::int32_t>((first + k * (o.experts / o.top_k)) % o.experts));
  }
  return chosen;
}

/// What all ranks send to rank 0, [ep, e]: T K / E rows an expert from each, a row more or less.
std::vector<std::int64_t> simulated_counts(const Options& o, Index ranks) {
  const CounterRandom random(2, stream_of("counts"));
  const Index here = experts_of(o.experts, ranks, 0).count;
  const Index mean = o.tokens * o.top_k / o.experts;
  std::vector<std::int64_t> counts(at(ranks * here));
  for (std::size_t i = 0; i < counts.size(); ++i)
    counts[i] = std::max<Index>(mean - 1 + static_cast<Index>(random.bits(i) % 3), 0);
  return counts;
}

/// The same where rows land at once, at the rank in the middle.
LandingCounts simulated_landing(const Options& o, Index ranks, const std::vector<std::int64_t>& received) {
  const Index mean = o.tokens * o.top_k / o.experts;
  std::vector<Index> first_rows;
  for (Index rank = 0; rank < ranks; ++rank)
    for (Index local = 0; local < experts_of(o.experts, ranks, rank).count; ++local)
      first_rows.push_back(mean * (local * ranks + ranks / 2));
  return {.first_rows = std::move(first_rows), .received = received};
}

nlohmann::ordered_json measure(const Options& o, Index ranks) {
  const auto chosen = simulated_choices(o);
  const auto counts = simulated_counts(o, ranks);
  const LandingCounts landing_counts = simulated_landing(o, ranks, counts);
  DispatchPlan plan;
  std::vector<Landing> landings;
  std::vector<double> sending, receiving, landing, both;
  for (int i = 0; i < o.samples + 1; ++i) {
    const double send = seconds_of([&] { plan_sending(chosen, o.top_k, o.experts, ranks, plan); }, 1);
    const double receive = seconds_of([&] { plan_receiving(counts, plan); }, 1);
    const double land = seconds_of([&] { plan_landing(landing_counts, chosen, 0, plan, landings); }, 1);
    if (i == 0) continue;  // memory is new
    sending.push_back(1e3 * send);
    receiving.push_back(1e3 * receive);
    landing.push_back(1e3 * land);
    both.push_back(1e3 * (send + receive));
  }
  const Spread together = spread_of(both);
  return {{"ep", ranks},
          {"experts", o.experts},
          {"tokens", o.tokens},
          {"top_k", o.top_k},
          {"rows", plan.rows()},
          {"sending_ms", median(sending)},
          {"receiving_ms", median(receiving)},
          {"landing_ms", median(landing)},
          {"ms", together.median},
          {"ms_p10", together.p10},
          {"ms_p90", together.p90},
          {"commit", bench::commit_text()}};
}

void run(const Options& o) {
  std::printf("%s\n%6s %10s %12s %10s %8s (p10..p90)\n", bench::environment_line(1).c_str(), "ep",
              "sending ms", "receiving ms", "landing ms", "both ms");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (Index ranks = 2; ranks <= std::min(o.most_ranks, o.experts); ranks *= 2) {
    rows.push_back(measure(o, ranks));
    const auto number = [&](const char* key) { return rows.back().at(key).get<double>(); };
    std::printf("%6lld %10.3f %12.3f %10.3f %8.3f (%.3f..%.3f)\n", static_cast<long long>(ranks),
                number("sending_ms"), number("receiving_ms"), number("landing_ms"), number("ms"),
                number("ms_p10"), number("ms_p90"));
  }
  bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("plan_scaling_bench", argc, argv, parse, run);
}
