#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/model/parameters.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kElementsPerTask = 1 << 14;

void fill_normal(const std::string& name, std::uint64_t seed, double deviation, std::span<float> values) {
  const CounterRandom random(seed, stream_of(name));
  parallel_blocks(static_cast<Index>(values.size()), kElementsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      values[at(i)] = static_cast<float>(deviation * random.normal(static_cast<std::uint64_t>(i)));
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
      fill_normal(slice.name, seed, config.initializer_range,
                  value.rows_from(slice.row_begin, slice.rows).flat());
  }
  store.mark_changed();
}

}  // namespace moeloom
