// How near do dispatch and combine come to copying their rows once?
//
//   mpirun -n 2 build/bench/dispatch_bench --models qwen3,mixtral,deepseek --bytes 64,4096,262144,16777216
//
// Forward and backward, four exchanges: tokens out with their weights, outputs back; gradients out, gradients
// back with theirs. Beside them `memcpy`: each rank copies as many rows as it sends, four times, in one
// piece. Every way takes its turn in each round and the slowest rank's time counts; a ratio is the median of
// the ratios within rounds. --bytes go from a rank to each of the others if experts are even; rows are as
// wide as the model's, or as the bytes where those are fewer. The plan is made once and not timed.
//
// --nodes pretends that the ranks lie on so many machines: times then mean nothing, but the bytes that would
// cross between them are counted, beside one fp32 copy of a row for each expert on another node.
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/moe/dispatch/dispatcher.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>

#include "support/dispatcher.hpp"
#include "support/json_file.hpp"
#include "moeloom/measure/paired.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Model {
  const char* name;
  Index hidden, experts, top_k;
};
// Qwen3-30B-A3B, Mixtral-8x7B, DeepSeek-V3.
constexpr Model kModels[] = {
    {"qwen3", 2048, 128, 8}, {"mixtral", 4096, 8, 2}, {"deepseek", 7168, 256, 8}, {"tiny", 16, 8, 2}};

struct Options {
  std::string models = "qwen3,mixtral,deepseek", loads = "balanced,zipf", ways = "alltoall,shared";
  std::string bytes = "64,4096,65536,262144,1048576,4194304,16777216";
  std::string json;
  std::string combine = "exact", wire_dtype = "fp32";
  Index nodes = 0;
  int threads = 1, samples = 9;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("dispatch_bench: dispatch and combine beside a copy of their rows");
  known.add_options()("models", po::value(&o.models)->default_value(o.models),
                      "of qwen3, mixtral, deepseek, tiny: row sizes, experts, top-k")(
      "loads", po::value(&o.loads)->default_value(o.loads), "of balanced, zipf")(
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
  throw std::invalid_argument("unknown model \"" + name + "\"; --help lists them");
}

/// The top_k largest of log(weight) + Gumbel noise: a draw without replacement, each expert by its weight.
std::vector<std::int32_t> choices(const Model& model, Index tokens, double zipf_exponent, int rank) {
  const CounterRandom random(static_cast<std::uint64_t>(rank), stream_of("choices"));
  std::vector<std::int32_t> chosen;
  std::vector<double> score(at(model.experts));
  std::vector<std::int32_t> order(at(model.experts));
  for (Index t = 0; t < tokens; ++t) {
    for (Index e = 0; e < model.experts; ++e) {
      const double u = random.uniform(static_cast<std::uint64_t>(t * model.experts + e));
      score[at(e)] = -zipf_exponent * std::log(static_cast<double>(e + 1)) - std::log(-std::log(u + 1e-12));
    }
    std::iota(order.begin(), order.end(), 0);
    std::ranges::partial_sort(order, order.begin() + model.top_k, std::greater{},
                              [&](std::int32_t e) { return score[at(e)]; });
    chosen.insert(chosen.end(), order.begin(), order.begin() + model.top_k);
  }
  return chosen;
}

struct Point {
  Model model;
  std::string load;
  Index bytes, cols, tokens;
};

Point point_of(const std::string& model, const std::string& load, Index bytes, int ranks) {
  if (load != "balanced" && load != "zipf") throw std::invalid_argument("unknown load \"" + load + "\"");
  const Model m = model_named(model);
  const Index cols = std::clamp<Index>(bytes / 4, 1, m.hidden);
  const Index rows_per_pair = std::max<Index>(1, bytes / (4 * cols));
  return {m, load, bytes, cols, ceil_div(rows_per_pair * ranks, m.top_k)};
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
    dispatcher_.prepare(output_, plan_.rows(), p.cols);
    fill(output_, 1.0f);
  }
  void run() {
    dispatcher_.dispatch(plan_, tokens_, rows_, ScalarsOut{slots_, row_scalars_});
    dispatcher_.combine(plan_, output_, sums_, Write::kAdd);
    dispatcher_.dispatch(plan_, tokens_, d_rows_);
    dispatcher_.combine(plan_, output_, sums_, Write::kReplace, ScalarsBack{row_scalars_, slots_});
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
  const Communicator& ep_;
  Dispatcher dispatcher_;
  Matrix tokens_, sums_;
  DispatchPlan plan_;
  RowBuffer rows_, d_rows_, output_;
  std::vector<float> slots_, row_scalars_;
};

/// The same rows by the same ranks: two buffers out and back each, as the exchanges have.
class RowCopy {
 public:
  explicit RowCopy(const Point& p)
      : tokens_(p.tokens * p.model.top_k, p.cols),
        rows_(tokens_.rows(), p.cols),
        d_rows_(tokens_.rows(), p.cols),
        output_(tokens_.rows(), p.cols) {}
  void run() {
    parts(tokens_, rows_);
    parts(output_, tokens_);
    parts(tokens_, d_rows_);
    parts(output_, tokens_);
  }

 private:
  static void parts(const Matrix& from, Matrix& to) {
    const Index each = ceil_div(from.rows(), threads());
    parallel_blocks(from.rows(), each, [&](Index begin, Index end) {
      std::memcpy(to.row(begin), from.row(begin), at((end - begin) * from.cols()) * sizeof(float));
    });
  }
  Matrix tokens_, rows_, d_rows_, output_;
};

double slowest_seconds(const Communicator& ep, const std::function<void()>& work, int repeats) {
  ep.barrier();
  return ep.all_max(bench::seconds_of(work, repeats));
}

struct Samples {
  std::vector<double> ms, against_memcpy, against_last;
  DispatchTraffic traffic;
};

/// samples[0] is memcpy; the others are the ways in their order.
std::vector<Samples> measure(const Options& o, const Communicator& ep, const Point& p) {
  const auto chosen = choices(p.model, p.tokens, p.load == "zipf" ? 1.0 : 0.0, ep.rank());
  RowCopy copy(p);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<std::function<void()>> works = {[&] { copy.run(); }};
  for (const std::string& way : bench::words(o.ways)) {
    exchanges.push_back(std::make_unique<Exchange>(ep, p, bench::dispatcher_named(way), wire_of(o), chosen));
    works.push_back([&exchange = *exchanges.back()] { exchange.run(); });
  }
  std::vector<int> repeats;
  for (const auto& work : works) {
    work();
    const double once = slowest_seconds(ep, work, 2);
    repeats.push_back(static_cast<int>(std::clamp(4e-3 / once, 1.0, 1e4)));
  }
  std::vector<Samples> samples(works.size());
  for (std::size_t i = 0; i < exchanges.size(); ++i) samples[i + 1].traffic = exchanges[i]->run_and_count();
  for (int round = 0; round < o.samples; ++round) {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < works.size(); ++i)
      seconds.push_back(slowest_seconds(ep, works[i], repeats[i]));
    for (std::size_t i = 0; i < works.size(); ++i) {
      samples[i].ms.push_back(1e3 * seconds[i]);
      samples[i].against_memcpy.push_back(seconds[0] / seconds[i]);
      samples[i].against_last.push_back(seconds[i] / seconds.back());
    }
  }
  return samples;
}

void report(const Options& o, const Point& p, int ranks, const std::vector<Samples>& samples,
            nlohmann::ordered_json& rows) {
  std::vector<std::string> names = bench::words("memcpy," + o.ways);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const bench::Percentiles ms = bench::percentiles(samples[i].ms);
    const bench::Percentiles share = bench::percentiles(samples[i].against_memcpy);
    const bench::Percentiles behind = bench::percentiles(samples[i].against_last);
    std::printf("%-9s %-9s %10lld %7lld %-9s %10.4f %8.0f %% %5.0f %5.0f %8.2f x %12lld %12lld\n",
                p.model.name, p.load.c_str(), static_cast<long long>(p.bytes),
                static_cast<long long>(p.tokens), names[i].c_str(), ms.median, 100 * share.median,
                100 * share.p10, 100 * share.p90, behind.median,
                static_cast<long long>(samples[i].traffic.network_bytes),
                static_cast<long long>(samples[i].traffic.row_bytes));
    rows.push_back({{"model", p.model.name},
                    {"load", p.load},
                    {"ranks", ranks},
                    {"threads", o.threads},
                    {"bytes_per_pair", p.bytes},
                    {"cols", p.cols},
                    {"tokens", p.tokens},
                    {"top_k", p.model.top_k},
                    {"way", names[i]},
                    {"ms", ms.median},
                    {"of_memcpy", share.median},
                    {"of_memcpy_p10", share.p10},
                    {"of_memcpy_p90", share.p90},
                    {"times_last", behind.median},
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
        "%s, %d ranks; a copy's time over a way's, p10, p90, and a way's time over the last's\n%-9s %-9s "
        "%10s %7s %-9s %10s %10s %5s %5s %10s %12s %12s\n",
        bench::environment_line(o.threads).c_str(), ep.size(), "model", "load", "bytes/pair", "tokens", "way",
        "ms", "of memcpy", "p10", "p90", "of last", "wire B", "logical B");
  for (const std::string& model : bench::words(o.models))
    for (const std::string& load : bench::words(o.loads))
      for (const std::string& bytes : bench::words(o.bytes)) {
        const Point p = point_of(model, load, std::stoll(bytes), ep.size());
        const std::vector<Samples> samples = measure(o, ep, p);
        if (ep.rank() == 0) report(o, p, ep.size(), samples, rows);
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
