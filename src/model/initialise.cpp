#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/model/hf/slice_io.hpp"
#include "moeloom/model/parameters.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kElementsPerTask = 1 << 14;

/// By the place in the file's tensor, so that the experts of a stacked one are not all the same.
void fill_normal(const HfSlice& slice, std::uint64_t seed, double deviation, MatrixView rows) {
  const CounterRandom random(seed, stream_of(slice.name));
  parallel_blocks(rows.size(), kElementsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      rows.data[i] = static_cast<float>(
          deviation * random.normal(static_cast<std::uint64_t>(place_in_file(slice, rows.cols, i))));
  });
}

}  // namespace

void initialise(ParameterStore& store, const ModelConfig& config, std::uint64_t seed) {
  for (const Parameter& parameter : store.parameters()) {
    const MatrixView value = parameter.value;
    if (parameter.spec.init == Init::kOnes) std::ranges::fill(value.flat(), 1.0f);
    if (parameter.spec.init == Init::kZeros) std::ranges::fill(value.flat(), 0.0f);
    if (parameter.spec.init != Init::kNormal) continue;
    for (const HfSlice& slice : parameter.spec.slices)
      fill_normal(slice, seed, config.initializer_range, value.rows_from(slice.row_begin, slice.rows));
  }
  store.mark_changed();
}

}  // namespace moeloom
