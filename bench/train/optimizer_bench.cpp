// How near is the optimizer's pass over its weights to a copy of as many bytes?
//
//   build/bench/optimizer_bench --threads 2
//
// An update reads a gradient and reads and writes a weight and both moments, each once: 28 bytes an element
// with moments in fp32, 20 in bf16, 16 and some in int8. Formats and a copy take turns on arrays that no
// cache holds; a row is the median over rounds of a format's bytes a second over the copy's, which counts
// what it reads and what it writes.
#include "moeloom/base/parallel.hpp"
#include "moeloom/measure/paired.hpp"
#include "train/adamw.hpp"

#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>

#include "support/heading.hpp"
#include "support/long_copy.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

constexpr Index kBlock = 1 << 16;  // ShardedOptimizer's

struct Options {
  Index elements = 1 << 25;
  int threads = 1, samples = 15;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("optimizer_bench: AdamW's pass over memory against a copy");
  known.add_options()("elements", po::value(&o.elements)->default_value(o.elements), "weights")(
      "threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "samples", po::value(&o.samples)->default_value(o.samples), "rounds");
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

struct Formats {
  Storage masters;
  MomentFormat moments;
};
constexpr std::array kFormats = {
    Formats{Storage::kFp32, MomentFormat::kFp32},  Formats{Storage::kFp32, MomentFormat::kBf16},
    Formats{Storage::kFp32, MomentFormat::kInt8},  Formats{Storage::kSplit, MomentFormat::kFp32},
    Formats{Storage::kSplit, MomentFormat::kBf16}, Formats{Storage::kBf16, MomentFormat::kBf16}};

/// Weights, gradients and both moments, in some formats; the memory of weights is shared.
struct State {
  Formats formats;
  StoredRows weights;
  const Matrix& gradients;
  Moments moments;
  Index time = 0;

  State(Formats formats, Matrix& memory, const Matrix& gradients)
      : formats(formats),
        weights(stored_in(memory, formats.masters)),
        gradients(gradients),
        moments(formats.moments, memory.cols(), memory.cols()) {}

  static StoredRows stored_in(Matrix& memory, Storage storage) {
    if (storage == Storage::kFp32) return memory.view();
    auto* const halves = reinterpret_cast<std::uint16_t*>(memory.row(0));
    return {Bf16View(halves, 1, memory.cols()),
            storage == Storage::kSplit ? halves + memory.cols() : nullptr};
  }

  double bytes() const {
    const MomentUnit unit = unit_of(formats.moments);
    const double of_weight = 2 * static_cast<double>(bytes_of(formats.masters));
    return (4 + of_weight +
            2 * 2 * 4.0 * static_cast<double>(unit.words) / static_cast<double>(unit.elements)) *
           static_cast<double>(weights.size());
  }

  void update() {
    ++time;
    const Index all = weights.size();
    parallel_for(ceil_div(all, kBlock), [&](Index block) {
      const Index begin = block * kBlock, count = std::min(kBlock, all - begin);
      adamw_update({}, {.learning_rate = 1e-4, .weight_decay = 0.1, .time = time, .rounding = at(block)},
                   gradients.view().flat().subspan(at(begin), at(count)), weights.elements(begin, count),
                   moments.view(Moment::kFirst, begin, count), moments.view(Moment::kSecond, begin, count));
    });
  }
};

void run(const Options& o) {
  set_threads(o.threads);
  Matrix weights(1, o.elements), gradients(1, o.elements);
  bench::LongCopy copy(o.elements);
  for (Index i = 0; i < o.elements; ++i) gradients.row(0)[i] = static_cast<float>(i % 997 - 498) * 1e-3f;
  std::vector<State> states;
  for (const Formats& formats : kFormats) states.emplace_back(formats, weights, gradients);
  for (State& state : states) state.update();
  const std::vector<Samples> samples = take_turns(states.size() + 1, o.samples, [&](std::size_t i) {
    return i == 0 ? copy.seconds() : seconds_of([&] { states[i - 1].update(); });
  });
  std::cout << bench::environment_line(o.threads) << "\n"
            << o.elements << " weights; a copy by " << copy.way() << ": "
            << 1e-9 * copy.bytes() / spread_of(samples[0]).median << " GB/s\n";
  for (std::size_t i = 0; i < states.size(); ++i) {
    Samples shares;
    for (std::size_t round = 0; round < samples[0].size(); ++round)
      shares.push_back(states[i].bytes() / samples[i + 1][round] / (copy.bytes() / samples[0][round]));
    const Spread share = spread_of(shares);
    std::printf(
        "masters %-5s moments %-5s %6.2f ms, %5.2f bytes a weight: %5.3f (%.3f to %.3f) of the copy's bytes "
        "a second\n",
        std::string(name_of(states[i].formats.masters)).c_str(),
        std::string(name_of(states[i].formats.moments)).c_str(), 1e3 * spread_of(samples[i + 1]).median,
        states[i].bytes() / static_cast<double>(o.elements), share.median, share.p10, share.p90);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::optional<Options> options = parse(argc, argv);
  if (options) run(*options);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
