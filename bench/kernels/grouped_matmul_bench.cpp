// How near do the experts' products come to the multiply-add peak, and how far ahead of a loop over experts?
//
// The limit of a product is its multiply-adds at the peak, or its weights, rows and results, each read or
// written once at a copy's speed, whichever takes longer.
//
// With --dtype bf16 ours multiplies bf16 and the peak is that of its dot products or tiles; the rivals stay
// fp32.
//
// Ours, a loop on OpenBLAS, and, where the build found it, oneDNN expert by expert on plain weights, each a
// turn a round beside the peak; all must agree before they are timed. --weights says what ours reads: the
// masters in fp32, as a step's only micro-batch does, or in bf16 (--masters split, frozen weights), or frozen
// in F16, beside which the same numbers in bf16 are a rival; or packed faces, whose packing is not part of
// the time.
#include "measure/copies.hpp"
#include "measure/workload.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "support/dtype.hpp"
#include "support/heading.hpp"
#include "support/options.hpp"
#ifdef MOELOOM_HAS_ONEDNN
#include "onednn_grouped_matmul.hpp"
#endif

namespace {

using namespace moeloom;
using Json = nlohmann::ordered_json;

struct Shape {
  const char* name;
  Index hidden, inter, experts;
};
// Resident experts: what one rank of a sharded model holds, and what fits a small machine.
constexpr Shape kShapes[] = {{"default", 256, 256, 8},
                             {"qwen3-30b", 2048, 768, 16},
                             {"mixtral-8x7b", 4096, 14336, 2},
                             {"deepseek-v3", 7168, 2048, 4},
                             {"layer-bench", 1024, 768, 32}};

struct Options {
  std::string shapes = "default,qwen3-30b";
  std::string rows = "8,32,64,256";
  std::string routing = "balanced,zipf";
  int threads = 1;
  int samples = 5;
  std::string dtype = "fp32", weights = "master", json;
  DType type() const { return bench::dtype_from_option(dtype); }
  void check() const {
    if (weights != "master" && weights != "halves" && weights != "f16" && weights != "packed")
      throw std::invalid_argument("unknown weights " + weights + "; known: master, halves, f16, packed");
  }
};

struct Rival {
  std::string name;
  GroupedMatmulKernel kernel;
};
std::vector<Rival> rivals() {
  return {{"loop", native_grouped_matmul()},
#ifdef MOELOOM_HAS_ONEDNN
          {"onednn", bench::onednn_grouped_matmul()}
#endif
  };
}

const Shape& shape_named(const std::string& name) {
  for (const Shape& shape : kShapes)
    if (shape.name == name) return shape;
  throw std::invalid_argument("unknown shape " + name +
                              "; known: default, qwen3-30b, mixtral-8x7b, deepseek-v3, layer-bench");
}

/// Rows of each expert, `rows` on average.
std::vector<Index> route(const std::string& routing, Index experts, Index rows) {
  return rows_per_expert(workload_named(routing), {rows * experts, experts, 1}, 0, 0);
}

/// One weight of every expert, its rows, and what ours reads of it.
class Product {
 public:
  Product(Index groups, Index out, Index in, Index most_rows, const Options& o)
      : masters_(filled(groups * out, in)),
        x_(filled(most_rows, in)),
        dy_(filled(most_rows, out)),
        y_(most_rows, out),
        dx_(most_rows, in),
        dw_(groups * out, in),
        groups_(groups) {
    if (o.weights == "packed") packed_.pack(masters(), o.type());
    read_ = masters_;
    if (o.weights != "halves" && o.weights != "f16") return;
    // F16 has them all: they are neither large nor subnormal.
    for (float& number : masters_.view().flat()) {
      bf16_.push_back(float_to_bf16(number));
      number = bf16_to_float(bf16_.back());
      if (o.weights == "f16") f16_.push_back(float_to_f16(number));
    }
    read_ = ConstHalfView(o.weights == "f16" ? f16_.data() : bf16_.data(), masters_.rows(), in,
                          o.weights == "f16" ? DType::kF16 : DType::kBF16);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  Index out() const { return dy_.cols(); }
  Index in() const { return x_.cols(); }

  /// What the last run of `op` wrote.
  ConstMatrixView result(const std::string& op) const {
    return op == "forward" ? y_ : op == "dx" ? dx_ : dw_;
  }

  GroupedWeights masters() const { return {masters_, groups_}; }
  GroupedWeights halves_or_masters() const { return {read_, groups_}; }
  GroupedWeights in_bf16() const {
    return {ConstHalfView(bf16_.data(), masters_.rows(), masters_.cols(), DType::kBF16), groups_};
  }

  /// That `op` of ours must move: operands and results once, the gradient twice where it is added to.
  double bytes(const std::string& op, const GroupedRows& rows, const Options& o) const {
    const auto used = [&](Index group) { return rows.of_group(group) > 0; };
    Index weights = 0;
    for (Index group = 0; group < groups_; ++group) weights += used(group) ? out() * in() : 0;
    const bool halves = o.weights == "packed" ? o.type() == DType::kBF16 : o.weights != "master";
    const Index passes = op == "dw" ? 4 : op == "dw+" ? 8 : halves ? 2 : 4;
    return static_cast<double>(4 * rows.total() * (in() + out()) + passes * weights);
  }

  /// Bytes a second, read and written, of a copy of all weights by the fastest way.
  double copy_speed() {
    const auto copy = [this](const CopyWay& way) {
      return seconds_of([&] {
        parallel_for(masters_.rows(), [&](Index row) {
          float* const target = dw_.row(row);
          way.spread(masters_.row(row), in(), std::span(&target, 1));
        });
      });
    };
    const CopyWay& way = fastest_copy(copy);
    Samples samples;
    for (int i = 0; i < 5; ++i) samples.push_back(copy(way));
    return 8.0 * static_cast<double>(masters_.rows() * in()) / spread_of(samples).median;
  }

  std::function<void()> work(const GroupedMatmulKernel& kernel, const GroupedWeights& weights,
                             const std::string& op, GroupedRows rows) {
    const Index n = rows.total();
    const ConstMatrixView x = x_.view().rows_from(0, n), dy = dy_.view().rows_from(0, n);
    if (op == "forward")
      return [=, this] { kernel.forward(weights, packed_, x, rows, y_.view().rows_from(0, n)); };
    if (op == "dx")
      return [=, this] { kernel.input_grad(weights, packed_, dy, rows, dx_.view().rows_from(0, n)); };
    const Write mode = op == "dw+" ? Write::kAdd : Write::kReplace;
    return [=, this] { kernel.weight_grad(dy, x, rows, dw_, mode); };
  }

 private:
  static Matrix filled(Index rows, Index cols) {
    Matrix m = Matrix::uninitialised(rows, cols);
    for (Index i = 0; i < rows * cols; ++i) m.view().data[i] = static_cast<float>(i % 613) * 1e-3f - 0.3f;
    return m;
  }

  Matrix masters_, x_, dy_, y_, dx_, dw_;
  Index groups_;
  PackedWeights packed_;
  std::vector<std::uint16_t> bf16_, f16_;
  ConstRows read_;
};

/// Throws where a rival's result is further from ours than rounding explains: then it does other work.
void check(Product& product, const GroupedMatmulKernel& ours, const GroupedRows& rows) {
  for (const char* op : {"forward", "dx", "dw"}) {
    product.work(ours, product.halves_or_masters(), op, rows)();
    const Matrix expected = Matrix::copy_of(product.result(op));
    for (const Rival& rival : rivals()) {
      product.work(rival.kernel, product.masters(), op, rows)();
      const std::span<const float> found = product.result(op).flat();
      const std::span<const float> wanted = expected.view().flat();
      float largest = 0;
      for (const float value : wanted) largest = std::max(largest, std::abs(value));
      // Both sum the same products, in fp32 or of operands with bf16's 8 bits.
      const float bound = (ours.element == DType::kBF16 ? 2e-2f : 1e-3f) * largest;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (!(std::abs(found[i] - wanted[i]) <= bound))  // also of a NaN
          throw std::runtime_error(rival.name + "'s " + op + " gives " + std::to_string(found[i]) +
                                   " where ours gives " + std::to_string(wanted[i]));
    }
  }
}

std::vector<std::string> rival_names(const Options& o) {
  std::vector<std::string> names;
  for (const Rival& rival : rivals()) names.push_back(rival.name);
  if (o.weights == "f16") names.push_back("bf16");
  return names;
}

void print_head(const Options& o) {
  std::printf("%-12s %-8s %-8s %-9s %5s %6s %6s | %6s %5s %5s (p10..p90)", "shape", "weight", "op", "routing",
              "rows", "peak", "limit", "ours", "share", "frac");
  for (const std::string& name : rival_names(o)) std::printf(" | %6s %5s %6s", name.c_str(), "frac", "ours/");
  std::printf("\n");
}

/// flops and the seconds that its bytes take at a copy's speed.
struct Work {
  double flops = 0;
  double copy_seconds = 0;
};

Json measure(const std::vector<Contender>& contenders, const Work& work, const Options& o, Json row) {
  const Contest contest = compete(
      contenders, work.flops, [&](double seconds) { return peak_gflops(o.type(), o.threads, seconds); },
      o.samples);
  row["dtype"] = o.dtype;
  row["weights"] = o.weights;
  row["threads"] = o.threads;
  row["samples"] = o.samples;
  row["peak_gflops"] = contest.peak_gflops;
  const double limit = std::min(contest.peak_gflops, 1e-9 * work.flops / work.copy_seconds);
  row["limit_gflops"] = limit;
  row["ours_share_of_limit"] = contest.standings[0].gflops / limit;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Standing& standing = contest.standings[i];
    const std::string& name = contenders[i].name;
    row[name + "_gflops"] = standing.gflops;
    row[name + "_fraction_p10"] = standing.fraction.p10;
    row[name + "_fraction"] = standing.fraction.median;
    row[name + "_fraction_p90"] = standing.fraction.p90;
    if (i > 0) row["ours_over_" + name] = standing.lead.median;
  }
  return row;
}

void print(const Json& r, const Options& o) {
  const auto text = [&r](const char* key) { return r.at(key).get<std::string>(); };
  const auto number = [&r](const std::string& key) { return r.at(key).get<double>(); };
  std::printf("%-12s %-8s %-8s %-9s %5.0f %6.1f %6.1f | %6.1f %5.3f %5.3f (%.2f..%.2f)",
              text("shape").c_str(), text("weight").c_str(), text("op").c_str(), text("routing").c_str(),
              number("rows_per_expert"), number("peak_gflops"), number("limit_gflops"), number("ours_gflops"),
              number("ours_share_of_limit"), number("ours_fraction"), number("ours_fraction_p10"),
              number("ours_fraction_p90"));
  for (const std::string& name : rival_names(o))
    std::printf(" | %6.1f %5.3f %5.2fx", number(name + "_gflops"), number(name + "_fraction"),
                number("ours_over_" + name));
  std::printf("\n");
  std::fflush(stdout);
}

void run_product(const Shape& shape, const char* weight, Index out, Index in, const Options& o,
                 Json& results) {
  std::vector<Index> row_counts;
  for (const std::string& word : bench::words(o.rows)) row_counts.push_back(std::stoll(word));
  const Index most = *std::max_element(row_counts.begin(), row_counts.end());
  Product product(shape.experts, out, in, most * shape.experts, o);
  const double copy_speed = product.copy_speed();
  for (const std::string& routing : bench::words(o.routing))
    for (const Index rows : row_counts) {
      const std::vector<Index> counts = route(routing, shape.experts, rows);
      const GroupedRows grouped{counts, 1};
      const double flops = 2.0 * static_cast<double>(grouped.total() * out * in);
      const GroupedMatmulKernel ours = bench::packed_kernel(o.type());
      check(product, ours, grouped);
      for (const char* op : {"forward", "dx", "dw", "dw+"}) {
        std::vector<Contender> contenders = {
            {"ours", product.work(ours, product.halves_or_masters(), op, grouped)}};
        for (const Rival& rival : rivals())
          contenders.push_back({rival.name, product.work(rival.kernel, product.masters(), op, grouped)});
        if (o.weights == "f16")
          contenders.push_back({"bf16", product.work(ours, product.in_bf16(), op, grouped)});
        results.push_back(measure(contenders, {flops, product.bytes(op, grouped, o) / copy_speed}, o,
                                  {{"shape", shape.name},
                                   {"weight", weight},
                                   {"out", out},
                                   {"in", in},
                                   {"copy_gbytes", 1e-9 * copy_speed},
                                   {"experts", shape.experts},
                                   {"op", op},
                                   {"routing", routing},
                                   {"rows_per_expert", rows}}));
        print(results.back(), o);
      }
    }
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("How near the experts' products come to the multiply-add peak");
  known.add_options()("shapes", po::value(&o.shapes)->default_value(o.shapes),
                      "of default, qwen3-30b, mixtral-8x7b, deepseek-v3, layer-bench")(
      "rows", po::value(&o.rows)->default_value(o.rows), "rows per expert, a list")(
      "routing", po::value(&o.routing)->default_value(o.routing),
      "a list of balanced, zipf, random, hot, ... (moeloom bench ep --help)")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "what ours multiplies: fp32, bf16")(
      "weights", po::value(&o.weights)->default_value(o.weights),
      "what ours reads: master, halves, f16, packed")(
      "samples", po::value(&o.samples)->default_value(o.samples), "rounds of peak and contenders")(
      "json", po::value(&o.json), "write an array of objects to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

void run(const Options& o) {
  if (o.type() == DType::kBF16 && !cpu_has_bf16()) return bench::report_no_bf16(o.json);
  o.check();
  set_threads(o.threads);
  std::printf(
      "%s, samples %d, %s, ours reads %s\nfrac: of the peak in the same round; share: of the limit; dw "
      "writes, dw+ adds\n",
      bench::environment_line(o.threads).c_str(), o.samples, o.dtype.c_str(), o.weights.c_str());
#ifndef MOELOOM_HAS_ONEDNN
  std::printf("no column onednn: the build found no oneDNN (Debian: libdnnl-dev)\n");
#endif
  print_head(o);
  Json results = Json::array();
  for (const std::string& name : bench::words(o.shapes)) {
    const Shape& shape = shape_named(name);
    run_product(shape, "gate_up", 2 * shape.inter, shape.hidden, o, results);
    run_product(shape, "down", shape.hidden, shape.inter, o, results);
  }
  bench::write_json(o.json, results);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("grouped_matmul_bench", argc, argv, parse, run);
}
