#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/model/hf/slice_io.hpp"
#include "moeloom/model/parameters.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

constexpr Index kElementsPerTask = 1 << 14;

/// draw(random, position) by the place in the file's tensor, so that the experts of a stacked one are not all
/// the same.
template <typename Draw>
void fill_random(const HfSlice& slice, std::uint64_t seed, MatrixView rows, const Draw& draw) {
  const CounterRandom random(seed, stream_of(slice.name));
  parallel_blocks(rows.size(), kElementsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      rows.data[i] =
          static_cast<float>(draw(random, static_cast<std::uint64_t>(place_in_file(slice, rows.cols, i))));
  });
}

double log_uniform(const CounterRandom& random, std::uint64_t position) {
  constexpr double kMost = 16;
  return std::log(kMost * std::max(random.uniform(position), 1e-6));
}

}  // namespace

void initialise(ParameterStore& store, const ModelConfig& config, std::uint64_t seed) {
  for (const Parameter& parameter : store.parameters()) {
    const MatrixView value = parameter.value;
    if (parameter.spec.init == Init::kOnes) std::ranges::fill(value.flat(), 1.0f);
    if (parameter.spec.init == Init::kZeros) std::ranges::fill(value.flat(), 0.0f);
    const auto fill_with = [&](const auto& draw) {
      for (const HfSlice& slice : parameter.spec.slices)
        fill_random(slice, seed, value.rows_from(slice.row_begin, slice.rows), draw);
    };
    if (parameter.spec.init == Init::kLogUniform) fill_with(log_uniform);
    if (parameter.spec.init == Init::kNormal)
      fill_with([&](const CounterRandom& random, std::uint64_t position) {
        return config.initializer_range * random.normal(position);
      });
  }
  store.mark_changed();
}

}  // namespace moeloom
