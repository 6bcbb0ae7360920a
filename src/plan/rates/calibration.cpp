#include "plan/rates/calibration.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <deque>
#include <memory>
#include <vector>

namespace moeloom {
namespace {

// With gradients and packed faces four times the bytes: more than a last-level cache's share, so that weights
// come from as far as they will in training.
constexpr Index kMeasuredWeights = 6 << 20;
constexpr Index kMostLayers = 8;
// Both paths' rates are flat beyond.
constexpr Index kMostRows = 256;

double weights_of(const GmmCase& c) {
  return 3.0 * static_cast<double>(c.hidden * c.inter * c.experts);
}

double products_of(const GmmCase& c) {
  return weights_of(c) * static_cast<double>(std::max<Index>(c.rows_per_expert, 1));
}

GmmCase part_of(const GmmCase& c) {
  const Index inter = std::clamp<Index>(kMeasuredWeights / (3 * c.hidden), 1, c.inter);
  const Index experts = std::clamp<Index>(kMeasuredWeights / (3 * c.hidden * inter), 1, c.experts);
  return {c.hidden, inter, experts, std::clamp<Index>(c.rows_per_expert, 1, kMostRows), c.sources};
}

Index layers_of(const GmmCase& part) {
  return std::clamp<Index>(std::llround(kMeasuredWeights / weights_of(part)), 1, kMostLayers);
}

Matrix filled(Index rows, Index cols) {
  Matrix m(rows, cols);
  fill(m, 0.01f);
  return m;
}

template <typename Work>
double seconds_of(Work work) {
  const double start = rate_clock();
  work();
  return rate_clock() - start;
}

/// Buffers that the layers share, as in training.
struct Workspace {
  explicit Workspace(const GmmCase& c)
      : activated(filled(c.experts * c.rows_per_expert, c.inter)),
        d_activated(activated.rows(), c.inter),
        output(activated.rows(), c.hidden),
        d_rows(filled(activated.rows(), c.hidden)) {}
  Matrix activated, d_activated, output, d_rows;
};

/// One layer's experts: the calls of a training step, in its order.
class Layer {
 public:
  Layer(const GmmCase& c, DType element)
      : counts_(even_rows(c)),
        sources_(c.sources),
        experts_(c.experts),
        gate_up_(filled(c.experts * 2 * c.inter, c.hidden)),
        down_(filled(c.experts * c.hidden, c.inter)),
        d_gate_up_(gate_up_.rows(), gate_up_.cols()),
        d_down_(down_.rows(), down_.cols()),
        x_(filled(c.experts * c.rows_per_expert, c.hidden)),
        z_(x_.rows(), 2 * c.inter) {
    pack(element);  // its memory is new, and a training step's is not
  }

  void pack(DType element) {
    packed_gate_up_.pack({gate_up_, experts_}, element);
    packed_down_.pack({down_, experts_}, element);
  }

  void forward(const GroupedMatmulKernel& kernel, Workspace& w) {
    kernel.forward({gate_up_, experts_}, face(kernel, packed_gate_up_), x_, rows(), z_);
    fused_swiglu().forward({}, z_, {}, w.activated);
    kernel.forward({down_, experts_}, face(kernel, packed_down_), w.activated, rows(), w.output);
  }

  void backward(const GroupedMatmulKernel& kernel, Workspace& w, Write mode) {
    kernel.input_grad({down_, experts_}, face(kernel, packed_down_), w.d_rows, rows(), w.d_activated);
    fused_swiglu().backward({}, z_, {}, w.d_activated, {z_, {}, w.activated});
    kernel.weight_grad(w.d_rows, w.activated, rows(), d_down_, mode);
    kernel.input_grad({gate_up_, experts_}, face(kernel, packed_gate_up_), z_, rows(), w.output);
    kernel.weight_grad(z_, x_, rows(), d_gate_up_, mode);
  }

 private:
  GroupedRows rows() const { return {counts_, sources_}; }
  const PackedWeights& face(const GroupedMatmulKernel& kernel, const PackedWeights& packed) const {
    return kernel.uses_packed ? packed : none_;
  }

  std::vector<Index> counts_;
  Index sources_, experts_;
  Matrix gate_up_, down_, d_gate_up_, d_down_, x_, z_;
  PackedWeights packed_gate_up_, packed_down_, none_;
};

/// Of all layers together.
struct PathSeconds {
  double pack = 0;
  double products = 0;
};

class Layers {
 public:
  Layers(const GmmCase& part, DType element) : workspace_(part) {
    for (Index i = layers_of(part); i > 0; --i) layers_.emplace_back(part, element);
  }
  double count() const { return static_cast<double>(layers_.size()); }

  /// The first micro-batch of a step, which packs and writes weight gradients.
  PathSeconds first(const GroupedMatmulKernel& kernel) {
    fill(others_, 1);  // between two steps the optimizer goes through the caches
    PathSeconds seconds;
    for (Layer& layer : layers_) {
      if (kernel.uses_packed) seconds.pack += seconds_of([&] { layer.pack(kernel.element); });
      seconds.products += seconds_of([&] { layer.forward(kernel, workspace_); });
    }
    seconds.products += backward(kernel, Write::kReplace);
    return seconds;
  }

  /// A later one, which adds them.
  double later(const GroupedMatmulKernel& kernel) {
    double seconds = 0;
    for (Layer& layer : layers_) seconds += seconds_of([&] { layer.forward(kernel, workspace_); });
    return seconds + backward(kernel, Write::kAdd);
  }

 private:
  double backward(const GroupedMatmulKernel& kernel, Write mode) {
    double seconds = 0;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
      seconds += seconds_of([&] { layer->backward(kernel, workspace_, mode); });
    return seconds;
  }

  std::deque<Layer> layers_;
  Workspace workspace_;
  Matrix others_ = Matrix(kCacheFloats >> 10, 1 << 10);
};

/// Every path once; all but the loop's first micro-batch as a share of it, because the clock of a shared
/// machine moves by half within seconds.
struct Round {
  double total = 0;
  double loop = 0;
  double gmm = 0, packed = 0, pack = 0, loop_add = 0, gmm_add = 0;
};

GroupedMatmulKernel reading(GroupedMatmulKernel kernel, bool packed) {
  kernel.uses_packed = packed;
  return kernel;
}

Round one_round(Layers& layers, const GroupedMatmulKernel& kernel) {
  const double loop = layers.first(native_grouped_matmul()).products;
  const double loop_later = layers.later(native_grouped_matmul());
  const double grouped = layers.first(reading(kernel, false)).products;
  const double grouped_later = layers.later(reading(kernel, false));
  const PathSeconds packed = layers.first(reading(kernel, true));
  return {loop + loop_later + grouped + grouped_later + packed.pack + packed.products,
          loop,
          grouped / loop,
          packed.products / loop,
          packed.pack / loop,
          (loop_later - loop) / loop,
          (grouped_later - grouped) / loop};
}

double median_of(const std::vector<Round>& rounds, double Round::*value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(round.*value);
  return median(values);
}

/// The loop's median, because it is the usual step that is predicted; shares of it from the quietest quarter:
/// who else is busy makes packing dearer than products, and is gone tomorrow.
GmmRates rates_of(std::vector<Round> rounds, double layers) {
  const double loop = median_of(rounds, &Round::loop) / layers;
  std::ranges::sort(rounds, {}, &Round::total);
  rounds.resize((rounds.size() + 3) / 4);
  const auto seconds = [&](double Round::*share) { return loop * median_of(rounds, share); };
  return {.loop_seconds = loop,
          .gmm_seconds = seconds(&Round::gmm),
          .packed_seconds = seconds(&Round::packed),
          .pack_seconds = seconds(&Round::pack),
          .loop_add_seconds = seconds(&Round::loop_add),
          .gmm_add_seconds = seconds(&Round::gmm_add)};
}

GmmRates measure(const GmmCase& part, double budget_seconds, const GroupedMatmulKernel& grouped) {
  constexpr std::size_t kFewest = 2, kMost = 40;
  const auto start = std::chrono::steady_clock::now();
  Layers layers(part, grouped.element);
  std::vector<Round> rounds;
  double spent = 0;
  while (rounds.size() < kFewest || (spent < budget_seconds && rounds.size() < kMost)) {
    rounds.push_back(one_round(layers, grouped));
    spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return rates_of(std::move(rounds), layers.count());
}

void require_sizes(const GmmCase& c) {
  require(c.hidden > 0 && c.inter > 0 && c.experts > 0 && c.sources > 0,
          "rates need positive hidden and inter sizes, at least one resident expert and one source");
}

}  // namespace

std::vector<Index> even_rows(const GmmCase& c) {
  std::vector<Index> rows;
  for (Index expert = 0; expert < c.experts; ++expert)
    for (Index s = 0; s < c.sources; ++s)
      rows.push_back(c.rows_per_expert * (s + 1) / c.sources - c.rows_per_expert * s / c.sources);
  return rows;
}

double rate_clock() {
  timespec time{};
  clock_gettime(threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

GmmCase calibration_case(const GmmCase& wanted) {
  GmmCase rounded = wanted;
  const double rows = static_cast<double>(std::clamp<Index>(wanted.rows_per_expert, 1, kMostRows));
  rounded.rows_per_expert = std::llround(std::exp2(std::round(2 * std::log2(rows)) / 2));
  return rounded;
}

GmmRates measure_gmm_rates(const GmmCase& measured, double budget_seconds,
                           const GroupedMatmulKernel& grouped) {
  require_sizes(measured);
  const GmmCase part = part_of(measured);
  return scaled(measure(part, budget_seconds, grouped), part, measured);
}

std::function<double()> gmm_timer(const GmmCase& measured, const GroupedMatmulKernel& kernel) {
  require_sizes(measured);
  const GmmCase part = part_of(measured);
  const auto layers = std::make_shared<Layers>(part, kernel.element);
  return [=] {
    const PathSeconds seconds = layers->first(kernel);
    return seconds.pack + seconds.products;
  };
}

GmmRates scaled(const GmmRates& rates, const GmmCase& measured, const GmmCase& wanted) {
  const double products = products_of(wanted) / products_of(measured);
  const double weights = weights_of(wanted) / weights_of(measured);
  return {.loop_seconds = rates.loop_seconds * products,
          .gmm_seconds = rates.gmm_seconds * products,
          .packed_seconds = rates.packed_seconds * products,
          .pack_seconds = rates.pack_seconds * weights,
          .loop_add_seconds = rates.loop_add_seconds * weights,
          .gmm_add_seconds = rates.gmm_add_seconds * weights};
}

GmmPrediction predict(const GmmRates& rates, double uses_per_packing) {
  require(uses_per_packing > 0, "a packing is used at least once");
  const double added = std::max(0.0, 1 - 1 / uses_per_packing);
  const double gmm_added = rates.gmm_add_seconds * added;
  return {rates.loop_seconds + rates.loop_add_seconds * added, rates.gmm_seconds + gmm_added,
          rates.packed_seconds + gmm_added + rates.pack_seconds / uses_per_packing};
}

}  // namespace moeloom
