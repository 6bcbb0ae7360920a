// How near do dispatch and combine come to the fastest way to move their rows?
//
//   mpirun -n 2 build/bench/dispatch_bench --models qwen3,mixtral,deepseek --bytes 64,4096,262144,16777216
//
// Forward and backward, four exchanges: tokens out with their weights, outputs back; gradients out, gradients
// back with theirs. Beside them `limit`: each rank reads a token once and writes it K times, then reads K
// rows and writes their sum, twice, in buffers like the exchange's of its own memory, in the order that suits
// it best; by the fastest of measure/copies.hpp for a point, whose names stand beside it. Every way takes its
// turn in each round and the slowest rank's time counts; a ratio is the median of the ratios within rounds.
// --bytes go from a rank to each of the others if experts are even; rows are as wide as the model's, or as
// the bytes where those are fewer. The plan is made once and not timed.
//
// --nodes pretends that the ranks lie on so many machines: times then mean nothing, but the bytes that would
// cross between them are counted, beside one fp32 copy of a row for each expert on another node.
#include "measure/copies.hpp"
#include "measure/workload.hpp"
#include "moe/dispatch/dispatcher.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>

#include "support/dispatcher.hpp"
#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Model {
  std::string name;
  Index hidden, experts, top_k;
};
// Qwen3-30B-A3B, Mixtral-8x7B, DeepSeek-V3.
const Model kModels[] = {
    {"qwen3", 2048, 128, 8}, {"mixtral", 4096, 8, 2}, {"deepseek", 7168, 256, 8}, {"tiny", 16, 8, 2}};

constexpr std::size_t kMostChoices = 8;

struct Options {
  std::string models = "qwen3,mixtral,deepseek", loads = "random,zipf", ways = "alltoall,shared";
  std::string bytes = "64,4096,65536,262144,1048576,4194304,16777216";
  std::string json;
  std::string combine = "exact", wire_dtype = "fp32";
  Index nodes = 0;
  int threads = 1, samples = 9;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("dispatch_bench: dispatch and combine beside the fastest copy of their rows");
  known.add_options()("models", po::value(&o.models)->default_value(o.models),
                      "of qwen3, mixtral, deepseek, tiny, or HIDDEN/EXPERTS/TOPK as 256/16/2")(
      "loads", po::value(&o.loads)->default_value(o.loads),
      "a list of random, zipf, balanced, hot, trace:FILE@LAYER, ... (moeloom bench ep --help)")(
      "ways", po::value(&o.ways)->default_value(o.ways), "dispatchers; the last is compared with the others")(
      "bytes", po::value(&o.bytes)->default_value(o.bytes), "of a pair of ranks in one exchange, a list")(
      "nodes", po::value(&o.nodes)->default_value(o.nodes), "pretended, of the ranks; 0: the real ones")(
      "combine", po::value(&o.combine)->default_value(o.combine), "of hierarchical: exact, fast")(
      "wire-dtype", po::value(&o.wire_dtype)->default_value(o.wire_dtype), "of rows that travel: fp32, bf16")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "rounds")(
      "json", po::value(&o.json), "also write the rows to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

Model model_named(const std::string& name) {
  for (const Model& model : kModels)
    if (name == model.name) return model;
  char rest = 0;
  long long hidden = 0, experts = 0, top_k = 0;
  if (std::sscanf(name.c_str(), "%lld/%lld/%lld%c", &hidden, &experts, &top_k, &rest) == 3 && hidden > 0 &&
      top_k > 0 && experts >= top_k && top_k <= static_cast<long long>(kMostChoices))
    return {name, hidden, experts, top_k};
  throw std::invalid_argument("unknown model \"" + name + "\"; --help lists them");
}

struct Point {
  Model model;
  Workload load = Workload::kBalanced;
  Index bytes = 0, cols = 0, tokens = 0;  // tokens of a rank
};

Point point_of(const std::string& model, const std::string& load, Index bytes, int ranks) {
  const Model m = model_named(model);
  const Index cols = std::clamp<Index>(bytes / 4, 1, m.hidden);
  const Index rows_per_pair = std::max<Index>(1, bytes / (4 * cols));
  Point point{m, workload_named(load), bytes, cols, ceil_div(rows_per_pair * ranks, m.top_k)};
  if (const auto reason = why_not(point.load, {point.tokens * ranks, m.experts, m.top_k}))
    throw std::invalid_argument(*reason);
  return point;
}

WireSettings wire_of(const Options& o) {
  if (o.combine != "exact" && o.combine != "fast")
    throw std::invalid_argument("unknown --combine \"" + o.combine + "\"; valid: exact, fast");
  if (o.wire_dtype != "fp32" && o.wire_dtype != "bf16")
    throw std::invalid_argument("unknown --wire-dtype \"" + o.wire_dtype + "\"; valid: fp32, bf16");
  return {o.combine == "fast" ? CombineMode::kFast : CombineMode::kExact,
          o.wire_dtype == "bf16" ? WireDType::kBf16 : WireDType::kFp32, o.nodes};
}

/// One way's own dispatcher and buffers.
class Exchange {
 public:
  Exchange(const Communicator& ep, const Point& p, DispatcherKind kind, const WireSettings& wire,
           std::span<const std::int32_t> chosen)
      : ep_(ep),
        dispatcher_(ep, p.model.experts, open_dispatcher(kind, ep, p.model.experts, wire)),
        tokens_(p.tokens, p.cols),
        sums_(p.tokens, p.cols),
        slots_(at(p.tokens * p.model.top_k), 1.0f) {
    dispatcher_.plan(chosen, p.model.top_k, plan_);
    row_scalars_.resize(at(plan_.rows()));
    run();  // makes the rows that go home
    fill(output_, 1.0f);
  }
  void run() {
    travel({.plan = plan_,
            .tokens = tokens_,
            .rows = rows_,
            .scalars_out = ScalarsOut{slots_, row_scalars_},
            .results = output_,
            .sums = sums_,
            .mode = Write::kAdd});
    travel({.plan = plan_,
            .tokens = tokens_,
            .rows = d_rows_,
            .scalars_out = std::nullopt,
            .results = output_,
            .sums = sums_,
            .scalars_back = ScalarsBack{row_scalars_, slots_}});
  }
  /// Of a run by all ranks.
  DispatchTraffic run_and_count() {
    const DispatchTraffic before = dispatcher_.traffic();
    run();
    const DispatchTraffic mine = dispatcher_.traffic() - before;
    std::array<std::int64_t, 2> bytes = {mine.network_bytes, mine.row_bytes};
    ep_.all_sum(bytes);
    return {bytes[0], bytes[1]};
  }

 private:
  void travel(const RoundTrip& trip) {
    dispatcher_.begin(trip);
    dispatcher_.await_all(trip);
    dispatcher_.send_all_back(trip);
    dispatcher_.finish(trip);
  }

  const Communicator& ep_;
  Dispatcher dispatcher_;
  Matrix tokens_, sums_;
  DispatchPlan plan_;
  RowBuffer rows_, d_rows_, output_;
  std::vector<float> slots_, row_scalars_;
};

/// The same rows by the same ranks: read once, written K times; K read, one written. Twice, as the exchanges.
class Limit {
 public:
  Limit(const Communicator& ep, const Point& p)
      : top_k_(p.model.top_k),
        tokens_(p.tokens, p.cols),
        sums_(p.tokens, p.cols),
        rows_(p.tokens * top_k_, p.cols),
        d_rows_(p.tokens * top_k_, p.cols),
        output_(p.tokens * top_k_, p.cols) {
    const auto seconds = [&](const auto& work) {
      return slowest_seconds(ep, work, slowest_repeats(ep, work));
    };
    spread_ = &fastest_copy([&](const CopyWay& way) { return seconds([&] { spread(way, rows_); }); });
    gather_ = &fastest_copy([&](const CopyWay& way) { return seconds([&] { gather(way); }); });
  }
  void run() {
    spread(*spread_, rows_);
    gather(*gather_);
    spread(*spread_, d_rows_);
    gather(*gather_);
  }
  std::string names() const {
    return std::string(spread_->name) + " out, " + std::string(gather_->name) + " back";
  }

 private:
  /// A thread's tokens, in order; work(token).
  template <typename Work>
  void for_tokens(const Work& work) {
    parallel_blocks(tokens_.rows(), std::max<Index>(1, ceil_div(tokens_.rows(), threads())),
                    [&](Index begin, Index end) {
                      for (Index token = begin; token < end; ++token) work(token);
                    });
  }
  /// Each of a token's rows lies in a stretch of its own, as those of K experts do.
  template <typename Pointer>
  std::span<Pointer const> rows_of(Index token, Matrix& rows, std::array<Pointer, kMostChoices>& all) const {
    for (Index k = 0; k < top_k_; ++k) all[at(k)] = rows.row(k * tokens_.rows() + token);
    return std::span(all).first(at(top_k_));
  }
  void spread(const CopyWay& way, Matrix& to) {
    for_tokens([&](Index token) {
      std::array<float*, kMostChoices> rows;
      way.spread(tokens_.row(token), tokens_.cols(), rows_of(token, to, rows));
    });
  }
  void gather(const CopyWay& way) {
    for_tokens([&](Index token) {
      std::array<const float*, kMostChoices> rows;
      way.gather(rows_of(token, output_, rows), sums_.cols(), sums_.row(token));
    });
  }

  Index top_k_;
  Matrix tokens_, sums_, rows_, d_rows_, output_;
  const CopyWay* spread_ = nullptr;
  const CopyWay* gather_ = nullptr;
};

struct Measured {
  Samples ms, of_limit, of_last;
  DispatchTraffic traffic;
};

/// The limit, then the ways in their order.
std::vector<Measured> measure(const Options& o, const Communicator& ep, const Point& p, Limit& limit) {
  const WorkloadShape shape{p.tokens * ep.size(), p.model.experts, p.model.top_k};
  const auto chosen = choose_experts(p.load, shape, 0, 0, {p.tokens * ep.rank(), p.tokens});
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<std::function<void()>> works = {[&] { limit.run(); }};
  for (const std::string& way : bench::words(o.ways)) {
    exchanges.push_back(std::make_unique<Exchange>(ep, p, bench::dispatcher_named(way), wire_of(o), chosen));
    works.push_back([&exchange = *exchanges.back()] { exchange.run(); });
  }
  std::vector<int> repeats;
  for (const auto& work : works) repeats.push_back(slowest_repeats(ep, work));
  std::vector<Measured> measured(works.size());
  for (std::size_t i = 0; i < exchanges.size(); ++i) measured[i + 1].traffic = exchanges[i]->run_and_count();
  const std::vector<Samples> seconds = take_turns(
      works.size(), o.samples, [&](std::size_t i) { return slowest_seconds(ep, works[i], repeats[i]); });
  for (std::size_t i = 0; i < works.size(); ++i) {
    for (const double each : seconds[i]) measured[i].ms.push_back(1e3 * each);
    measured[i].of_limit = ratios(seconds[0], seconds[i]);
    measured[i].of_last = ratios(seconds[i], seconds.back());
  }
  return measured;
}

void report(const Options& o, const Point& p, int ranks, const std::vector<Measured>& samples,
            const std::string& copies, nlohmann::ordered_json& rows) {
  const std::vector<std::string> names = bench::words("limit," + o.ways);
  const std::string load(name_of(p.load));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Spread ms = spread_of(samples[i].ms);
    const Spread share = spread_of(samples[i].of_limit);
    const double behind = median(samples[i].of_last);
    std::printf("%-9s %-9s %10lld %7lld %-9s %10.4f %8.0f %% %5.0f %5.0f %8.2f x %12lld %12lld  %s\n",
                p.model.name.c_str(), load.c_str(), static_cast<long long>(p.bytes),
                static_cast<long long>(p.tokens), names[i].c_str(), ms.median, 100 * share.median,
                100 * share.p10, 100 * share.p90, behind,
                static_cast<long long>(samples[i].traffic.network_bytes),
                static_cast<long long>(samples[i].traffic.row_bytes), i == 0 ? copies.c_str() : "");
    rows.push_back({{"model", p.model.name},
                    {"load", load},
                    {"ranks", ranks},
                    {"threads", o.threads},
                    {"bytes_per_pair", p.bytes},
                    {"cols", p.cols},
                    {"tokens", p.tokens},
                    {"top_k", p.model.top_k},
                    {"way", names[i]},
                    {"limit", copies},
                    {"ms", ms.median},
                    {"of_limit", share.median},
                    {"of_limit_p10", share.p10},
                    {"of_limit_p90", share.p90},
                    {"times_last", behind},
                    {"nodes", o.nodes},
                    {"combine", o.combine},
                    {"wire_dtype", o.wire_dtype},
                    {"network_bytes", samples[i].traffic.network_bytes},
                    {"row_bytes", samples[i].traffic.row_bytes},
                    {"commit", bench::commit_text()}});
  }
}

void run(const Options& o) {
  set_threads(o.threads);
  const Communicator ep = Communicator::world();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (ep.rank() == 0)
    std::printf(
        "%s, %d ranks; the limit's time over a way's, p10, p90, and a way's time over the last's\n%-9s %-9s "
        "%10s %7s %-9s %10s %10s %5s %5s %10s %12s %12s\n",
        bench::environment_line(o.threads).c_str(), ep.size(), "model", "load", "bytes/pair", "tokens", "way",
        "ms", "of limit", "p10", "p90", "of last", "network B", "row B");
  for (const std::string& model : bench::words(o.models))
    for (const std::string& load : bench::words(o.loads))
      for (const std::string& bytes : bench::words(o.bytes)) {
        const Point p = point_of(model, load, std::stoll(bytes), ep.size());
        Limit limit(ep, p);
        const std::vector<Measured> samples = measure(o, ep, p, limit);
        if (ep.rank() == 0) report(o, p, ep.size(), samples, limit.names(), rows);
      }
  if (ep.rank() == 0) bench::write_json(o.json, rows);
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = parse(argc, argv)) run(*o);
} catch (const std::exception& error) {
  std::cerr << "dispatch_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
