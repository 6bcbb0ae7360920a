// How near do rmsnorm, rope and swiglu come to the speed of a copy, and how far are they from their
// references?
//
// Each sample times a copy and then the kernel, so both meet the same state of the machine; the figures are
// percentiles of the ratios. Bytes are what the kernel must read and write once; a copy's likewise.
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/kernels/elementwise/rope.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/json_file.hpp"
#include "moeloom/measure/paired.hpp"
#include "support/options.hpp"
#include <nlohmann/json.hpp>

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

/// One kernel's turn: bytes it must read and write, and itself.
struct Subject {
  std::string name;
  Index bytes_moved = 0;
  std::function<void()> fused;
  std::function<void()> reference;
};

using bench::Percentiles;
using bench::percentiles;
using bench::repeats_for;
using bench::seconds_of;

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
Subject subject(std::string name, Index bytes_moved, Kernel fused, Kernel reference, Call call) {
  return {std::move(name), bytes_moved, [=] { call(fused); }, [=] { call(reference); }};
}

std::vector<Subject> norm_subjects(Buffers& b, Index size) {
  return {
      subject("rmsnorm forward", 8 * size, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) { k.forward(b.x, b.weight, {}, b.y, b.inv_rms); }),
      subject("rmsnorm forward to bf16", 6 * size, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) { k.forward(b.x, b.weight, {}, b.half.rows(), b.inv_rms); }),
      subject(
          "rmsnorm backward", 12 * size, fused_rmsnorm(), reference_rmsnorm(),
          [&b](const RmsNormKernel& k) { k.backward(b.dy, b.x, b.weight, {}, b.inv_rms, b.y, b.d_weight); }),
      subject("gated rmsnorm forward", 12 * size, fused_rmsnorm(), reference_rmsnorm(),
              [&b](const RmsNormKernel& k) { k.gated_forward(b.x, b.dy, b.weight, {}, b.y, b.inv_rms); }),
      subject("gated rmsnorm backward", 20 * size, fused_rmsnorm(), reference_rmsnorm(),
              [&b, gate = b.gate_up.view().rows_from(0, b.x.rows()).cols_from(0, b.x.cols()),
               d_gate = b.d_gate_up.view().cols_from(0, b.x.cols())](const RmsNormKernel& k) {
                k.gated_backward(b.dy, b.x, gate, b.weight, {}, b.inv_rms, b.y, d_gate, b.d_weight);
              }),
  };
}

std::vector<Subject> rope_subjects(Buffers& b, Index size, Index head_dim) {
  std::vector<Subject> all;
  for (const auto& [name, table] :
       {std::pair{"half-split", &b.halves}, std::pair{"interleaved", &b.neighbours},
        std::pair{"to halves", &b.into_halves}})
    all.push_back(subject(std::string("rope ") + name, 8 * size, fused_rope(), reference_rope(),
                          [&b, head_dim, table = table](const RopeKernel& k) {
                            k.forward(b.y, head_dim, b.position_ids, *table);
                          }));
  return all;
}

std::vector<Subject> gated_subjects(Buffers& b, Index size) {
  std::vector<Subject> all;
  const std::pair<const char*, GatedActivation> activations[] = {
      {"swiglu", {}},
      {"geglu tanh", {Activation::kGeluTanh}},
      {"geglu", {Activation::kGelu}},
      {"geglu tanh, sparse", {Activation::kGeluTanh, 0.95f}}};
  for (const auto& [name, activation] : activations) {
    all.push_back(subject(name + std::string(" forward"), 12 * size, fused_swiglu(), reference_swiglu(),
                          [&b, activation = activation](const SwigluKernel& k) {
                            k.forward(activation, b.gate_up, b.row_scale, b.y);
                          }));
    all.push_back(subject(name + std::string(" backward"), 24 * size, fused_swiglu(), reference_swiglu(),
                          [&b, activation = activation](const SwigluKernel& k) {
                            k.backward(activation, b.gate_up, b.row_scale, b.dy, b.d_gate_up, b.d_row_scale,
                                       b.y);
                          }));
  }
  all.push_back(
      subject("swiglu forward to bf16", 10 * size, fused_swiglu(), reference_swiglu(),
              [&b](const SwigluKernel& k) { k.forward({}, b.gate_up, b.row_scale, b.half.rows()); }));
  all.push_back(subject(
      "swiglu backward to bf16", 18 * size, fused_swiglu(), reference_swiglu(), [&b](const SwigluKernel& k) {
        k.backward({}, b.gate_up, b.row_scale, b.dy, b.d_gate_up_half.rows(), b.d_row_scale, b.half.rows());
      }));
  return all;
}

std::vector<Subject> subjects(Buffers& b, const Options& o) {
  const Index size = o.rows * o.cols;
  std::vector<Subject> chosen;
  for (auto& group : {norm_subjects(b, size), rope_subjects(b, size, o.head_dim), gated_subjects(b, size)})
    for (const Subject& each : group)
      if (each.name.find(o.only) != std::string::npos) chosen.push_back(each);
  return chosen;
}

/// The rows of x to d_gate_up's first half by all threads, with the C library's memcpy.
void copy_rows(Buffers& b) {
  parallel_blocks(b.x.rows(), 16, [&](Index begin, Index end) {
    std::memcpy(b.d_gate_up.row(0) + begin * b.x.cols(), b.x.row(begin),
                sizeof(float) * static_cast<std::size_t>((end - begin) * b.x.cols()));
  });
}

nlohmann::ordered_json measure(const Subject& subject, Buffers& b, const Options& o) {
  const auto copying = [&b] { copy_rows(b); };
  const double size = static_cast<double>(o.rows * o.cols);
  const int copies = repeats_for(copying), repeats = repeats_for(subject.fused);
  std::vector<double> share, gigabytes, copy_gigabytes;
  for (int i = 0; i < o.samples; ++i) {
    copy_gigabytes.push_back(8e-9 * size / seconds_of(copying, copies));
    gigabytes.push_back(1e-9 * static_cast<double>(subject.bytes_moved) / seconds_of(subject.fused, repeats));
    share.push_back(gigabytes.back() / copy_gigabytes.back());
  }
  std::vector<double> plain_seconds;
  for (int i = 0; i < 3; ++i) plain_seconds.push_back(seconds_of(subject.reference, 1));
  const Percentiles of_copy = percentiles(share);
  const double speed = percentiles(gigabytes).median;
  const double fused_ns = static_cast<double>(subject.bytes_moved) / speed / size;
  const double plain_ns = 1e9 * percentiles(plain_seconds).median / size;
  return {{"kernel", subject.name},
          {"rows", o.rows},
          {"cols", o.cols},
          {"threads", o.threads},
          {"samples", o.samples},
          {"gb_per_s", speed},
          {"copy_gb_per_s", percentiles(copy_gigabytes).median},
          {"of_copy_p10", of_copy.p10},
          {"of_copy", of_copy.median},
          {"of_copy_p90", of_copy.p90},
          {"fused_ns_per_element", fused_ns},
          {"reference_ns_per_element", plain_ns},
          {"speedup", plain_ns / fused_ns}};
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("How near the elementwise kernels come to the speed of a copy");
  known.add_options()("rows", po::value(&o.rows)->default_value(o.rows), "tokens")(
      "cols", po::value(&o.cols)->default_value(o.cols), "hidden or expert size")(
      "head-dim", po::value(&o.head_dim)->default_value(o.head_dim), "divides cols")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "samples", po::value(&o.samples)->default_value(o.samples), "pairs of copy and kernel")(
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
  std::printf("rows %lld, cols %lld, threads %d, samples %d\n", static_cast<long long>(o.rows),
              static_cast<long long>(o.cols), o.threads, o.samples);
  std::printf("%-27s %8s %8s %22s %10s %10s %8s\n", "kernel", "GB/s", "copy", "of copy (p10..p90)",
              "ns/element", "reference", "speedup");
  auto results = nlohmann::ordered_json::array();
  for (const Subject& each : subjects(buffers, o)) {
    const auto r = measure(each, buffers, o);
    const auto number = [&r](const char* key) { return r.at(key).get<double>(); };
    std::printf("%-27s %8.1f %8.1f %8.2f (%5.2f..%5.2f) %10.3f %10.3f %7.1fx\n", each.name.c_str(),
                number("gb_per_s"), number("copy_gb_per_s"), number("of_copy"), number("of_copy_p10"),
                number("of_copy_p90"), number("fused_ns_per_element"), number("reference_ns_per_element"),
                number("speedup"));
    results.push_back(r);
  }
  bench::write_json(o.json, results);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("elementwise_bench", argc, argv, parse, run);
}
