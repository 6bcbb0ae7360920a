// How near do rmsnorm, rope and swiglu come to the fastest way to move their bytes, and how far are they from
// their references?
//
// Each sample times that limit and then the kernel, so both meet the same state of the machine and of its
// caches; the figures are percentiles of the ratios. The limit reads and writes as many bytes as the kernel
// must, in as many streams: rows copied, the others only read; by the fastest of measure/copies.hpp, whose
// name stands beside it. Rope works in place, and so does its limit.
#include "measure/copies.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/kernels/elementwise/rope.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index rows = 16384;
  Index cols = 2048;
  Index head_dim = 128;
  int threads = 1;
  int samples = 21;
  std::string only;
  std::string json;
};

/// What a kernel must read and write of an element.
struct Traffic {
  Index read = 0, written = 0;  // bytes
  bool in_place = false;        // what is written lies where it was read
  Index bytes() const { return read + written; }
};

/// One kernel's turn: its traffic, and itself.
struct Subject {
  std::string name;
  Traffic traffic;
  std::function<void()> fused;
  std::function<void()> reference;
};

RopeTable table_for(const Options& o, RopePairs pairs) {
  return make_rope_table(4096, {.rotary_dim = o.head_dim, .theta = 1e6, .pairs = pairs});
}

/// All memory of a run. Every buffer is filled, so each page is there before a clock starts.
struct Buffers {
  explicit Buffers(const Options& o)
      : x(o.rows, o.cols),
        y(o.rows, o.cols),
        dy(o.rows, o.cols),
        gate_up(o.rows, 2 * o.cols),
        d_gate_up(o.rows, 2 * o.cols),
        weight(static_cast<std::size_t>(o.cols), 1.1f),
        d_weight(weight.size()),
        row_scale(static_cast<std::size_t>(o.rows), 0.5f),
        d_row_scale(row_scale.size()),
        inv_rms(row_scale.size(), 1.0f),
        position_ids(row_scale.size()),
        halves(table_for(o, RopePairs::kHalfSplit)),
        neighbours(table_for(o, RopePairs::kInterleaved)),
        into_halves(table_for(o, RopePairs::kInterleavedToHalves)) {
    for (const auto& [memory, cols] : {std::pair{&half, o.cols}, std::pair{&d_gate_up_half, 2 * o.cols}}) {
      const auto rows = std::get<Bf16View>(memory->reshape_uninitialised(DType::kBF16, o.rows, cols));
      std::fill_n(rows.data, rows.rows * rows.stride, std::uint16_t{0});
    }
    for (Matrix* m : {&x, &dy, &gate_up})
      for (Index i = 0; i < m->rows() * m->cols(); ++i)
        m->view().data[i] = static_cast<float>(i % 613) / 100 - 3;
    for (std::size_t t = 0; t < position_ids.size(); ++t)
      position_ids[t] = static_cast<std::int32_t>(t % 4096);
  }

  Matrix x, y, dy, gate_up, d_gate_up;
  RowMemory half, d_gate_up_half;
  std::vector<float> weight, d_weight, row_scale, d_row_scale, inv_rms;
  std::vector<std::int32_t> position_ids;
  RopeTable halves, neighbours, into_halves;
};

/// The two forms of a kernel as two closures.
template <typename Kernel, typename Call>
Subject subject(std::string name, Traffic traffic, Kernel fused, Kernel reference, Call call) {
  return {std::move(name), traffic, [=] { call(fused); }, [=] { call(reference); }};
}

std::vector<Subject> norm_subjects(Buffers& b) {
  return {
      subject("rmsnorm forward", {4, 4}, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) { k.forward(b.x, b.weight, {}, b.y, b.inv_rms); }),
      subject("rmsnorm forward to bf16", {4, 2}, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) { k.forward(b.x, b.weight, {}, b.half.rows(), b.inv_rms); }),
      subject("rmsnorm backward", {8, 4}, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) {
                k.backward({b.x, b.weight, {}, b.inv_rms}, b.dy, b.y, b.d_weight);
              }),
      subject("gated rmsnorm forward", {8, 4}, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) { k.gated_forward(b.x, b.dy, b.weight, {}, b.y, b.inv_rms); }),
      subject("gated rmsnorm backward", {12, 8}, fused_rmsnorm(), reference_rmsnorm(),
              [&b, gate = b.gate_up.view().rows_from(0, b.x.rows()).cols_from(0, b.x.cols()),
               d_gate = b.d_gate_up.view().cols_from(0, b.x.cols())](const RmsNormKernel& k) {
                k.gated_backward({b.x, b.weight, {}, b.inv_rms}, gate, b.dy, b.y, d_gate, b.d_weight);
              }),
  };
}

std::vector<Subject> rope_subjects(Buffers& b, Index head_dim) {
  std::vector<Subject> all;
  for (const auto& [name, table] :
       {std::pair{"half-split", &b.halves}, std::pair{"interleaved", &b.neighbours},
        std::pair{"to halves", &b.into_halves}})
    all.push_back(subject(std::string("rope ") + name, {4, 4, true}, fused_rope(), reference_rope(),
                          [&b, head_dim, table = table](const RopeKernel& k) {
                            k.forward(b.y, head_dim, b.position_ids, *table);
                          }));
  return all;
}

std::vector<Subject> gated_subjects(Buffers& b) {
  std::vector<Subject> all;
  const std::pair<const char*, GatedActivation> activations[] = {
      {"swiglu", {}},
      {"geglu tanh", {Activation::kGeluTanh}},
      {"geglu", {Activation::kGelu}},
      {"geglu tanh, sparse", {Activation::kGeluTanh, 0.95f}}};
  for (const auto& [name, activation] : activations) {
    all.push_back(subject(name + std::string(" forward"), {8, 4}, fused_swiglu(), reference_swiglu(),
                          [&b, activation = activation](const SwigluKernel& k) {
                            k.forward(activation, b.gate_up, b.row_scale, b.y);
                          }));
    all.push_back(
        subject(name + std::string(" backward"), {12, 12}, fused_swiglu(), reference_swiglu(),
                [&b, activation = activation](const SwigluKernel& k) {
                  k.backward(activation, b.gate_up, b.row_scale, b.dy, {b.d_gate_up, b.d_row_scale, b.y});
                }));
  }
  all.push_back(
      subject("swiglu forward to bf16", {8, 2}, fused_swiglu(), reference_swiglu(),
              [&b](const SwigluKernel& k) { k.forward({}, b.gate_up, b.row_scale, b.half.rows()); }));
  all.push_back(subject(
      "swiglu backward to bf16", {12, 6}, fused_swiglu(), reference_swiglu(), [&b](const SwigluKernel& k) {
        k.backward({}, b.gate_up, b.row_scale, b.dy, {b.d_gate_up_half.rows(), b.d_row_scale, b.half.rows()});
      }));
  return all;
}

std::vector<Subject> subjects(Buffers& b, const Options& o) {
  std::vector<Subject> chosen;
  for (auto& group : {norm_subjects(b), rope_subjects(b, o.head_dim), gated_subjects(b)})
    for (const Subject& each : group)
      if (each.name.find(o.only) != std::string::npos) chosen.push_back(each);
  return chosen;
}

/// Memory of its own, so that a kernel's results are as they were. Streams of 4 bytes an element.
class Limit {
 public:
  explicit Limit(const Options& o) {
    for (Matrix& m : from_) m = filled(o);
    for (Matrix& m : to_) m = filled(o);
  }
  /// So much by all threads: of each stream the last may be half as wide.
  void run(const CopyWay& way, const Traffic& traffic) {
    parallel_blocks(from_[0].rows(), kBlock, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row) move(way, traffic, row);
    });
  }

 private:
  static constexpr Index kBlock = 16;
  static Matrix filled(const Options& o) {
    Matrix m = Matrix::uninitialised(o.rows, o.cols);
    fill(m, 1);
    return m;
  }
  void move(const CopyWay& way, const Traffic& traffic, Index row) {
    const Index cols = from_[0].cols();
    for (Index stream = 0; 4 * stream < traffic.read; ++stream) {
      const Index written = std::clamp<Index>((traffic.written - 4 * stream) * cols / 4, 0, cols);
      float* const to = traffic.in_place ? from_[at(stream)].row(row) : to_[at(stream)].row(row);
      if (written > 0) way.spread(from_[at(stream)].row(row), written, std::span(&to, 1));
      if (written < cols) read_row(from_[at(stream)].row(row) + written, cols - written);
    }
  }
  std::array<Matrix, 3> from_, to_;
};

nlohmann::ordered_json measure(const Subject& subject, Limit& limit, const Options& o) {
  const double size = static_cast<double>(o.rows * o.cols);
  const double bytes = static_cast<double>(subject.traffic.bytes()) * size;
  const CopyWay fastest = fastest_copy([&](const CopyWay& way) {
    if (subject.traffic.in_place && way.name == "memcpy")
      return 1e9;  // would find that there is nothing to do
    return seconds_of([&] { limit.run(way, subject.traffic); });
  });
  const auto moving = [&] { limit.run(fastest, subject.traffic); };
  const int moves = repeats_for(moving), repeats = repeats_for(subject.fused);
  const std::vector<Samples> seconds = take_turns(2, o.samples, [&](std::size_t i) {
    return i == 0 ? seconds_of(moving, moves) : seconds_of(subject.fused, repeats);
  });
  Samples plain_seconds;
  for (int i = 0; i < 3; ++i) plain_seconds.push_back(seconds_of(subject.reference));
  const Spread share = spread_of(ratios(seconds[0], seconds[1]));
  const double fused_ns = 1e9 * median(seconds[1]) / size, plain_ns = 1e9 * median(plain_seconds) / size;
  return {{"kernel", subject.name},
          {"rows", o.rows},
          {"cols", o.cols},
          {"threads", o.threads},
          {"samples", o.samples},
          {"gb_per_s", 1e-9 * bytes / median(seconds[1])},
          {"limit_gb_per_s", 1e-9 * bytes / median(seconds[0])},
          {"limit", fastest.name},
          {"of_limit_p10", share.p10},
          {"of_limit", share.median},
          {"of_limit_p90", share.p90},
          {"fused_ns_per_element", fused_ns},
          {"reference_ns_per_element", plain_ns},
          {"speedup", plain_ns / fused_ns}};
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known(
      "How near the elementwise kernels come to the fastest way to move their bytes");
  known.add_options()("rows", po::value(&o.rows)->default_value(o.rows), "tokens")(
      "cols", po::value(&o.cols)->default_value(o.cols), "hidden or expert size")(
      "head-dim", po::value(&o.head_dim)->default_value(o.head_dim), "divides cols")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "samples", po::value(&o.samples)->default_value(o.samples), "pairs of limit and kernel")(
      "only", po::value(&o.only), "kernels whose names hold this text")(
      "json", po::value(&o.json), "write an array of objects to this file");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  if (o.rows < 1 || o.cols < 1 || o.samples < 1 || o.head_dim < 2 || o.cols % o.head_dim != 0) {
    throw std::invalid_argument("rows, cols and samples must be positive, and head-dim must divide cols");
  }
  return o;
}

void run(const Options& o) {
  set_threads(o.threads);
  Buffers buffers(o);
  Limit limit(o);
  std::printf("rows %lld, cols %lld, threads %d, samples %d\n", static_cast<long long>(o.rows),
              static_cast<long long>(o.cols), o.threads, o.samples);
  std::printf("%-27s %8s %8s %22s %10s %10s %8s  %s\n", "kernel", "GB/s", "limit", "of limit (p10..p90)",
              "ns/element", "reference", "speedup", "limit by");
  auto results = nlohmann::ordered_json::array();
  for (const Subject& each : subjects(buffers, o)) {
    const auto r = measure(each, limit, o);
    const auto number = [&r](const char* key) { return r.at(key).get<double>(); };
    std::printf("%-27s %8.1f %8.1f %8.2f (%5.2f..%5.2f) %10.3f %10.3f %7.1fx  %s\n", each.name.c_str(),
                number("gb_per_s"), number("limit_gb_per_s"), number("of_limit"), number("of_limit_p10"),
                number("of_limit_p90"), number("fused_ns_per_element"), number("reference_ns_per_element"),
                number("speedup"), r.at("limit").get<std::string>().c_str());
    results.push_back(r);
  }
  bench::write_json(o.json, results);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("elementwise_bench", argc, argv, parse, run);
}
