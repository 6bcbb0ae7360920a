#include "model/hf/weights/initialise.hpp"

#include "model/hf/stored/slice_io.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace moeloom {
namespace {

constexpr Index kElementsPerTask = 1 << 14;

/// draw(random, position) by the place in the file's tensor, so that the experts of a stacked one are not all
/// the same.
template <typename Draw>
void fill_random(const HfSlice& slice, std::uint64_t seed, const StoredRows& rows, const Draw& draw) {
  const CounterRandom random(seed, stream_of(slice.name));
  parallel_blocks(rows.size(), kElementsPerTask, [&](Index begin, Index end) {
    std::array<float, kElementsPerTask> drawn;
    for (Index i = begin; i < end; ++i)
      drawn[at(i - begin)] =
          static_cast<float>(draw(random, static_cast<std::uint64_t>(place_in_file(slice, rows.cols(), i))));
    rows.elements(begin, end - begin).write(std::span(drawn).first(at(end - begin)));
  });
}

double log_uniform(const CounterRandom& random, std::uint64_t position) {
  constexpr double kMost = 16;
  return std::log(kMost * std::max(random.uniform(position), 1e-6));
}

void initialise_one(const Parameter& parameter, const ModelConfig& config, std::uint64_t seed) {
  const ParameterSpec& spec = parameter.spec;
  if (!parameter.is_filled_here) return;
  const StoredRows rows = parameter.stored();
  const auto fill_with = [&](const auto& draw) {
    for (const HfSlice& slice : spec.slices)
      fill_random(slice, seed, rows.rows_from(slice.row_begin, slice.rows), draw);
  };
  const auto fill_normal = [&](double deviation) {
    fill_with([=](const CounterRandom& random, std::uint64_t position) {
      return deviation * random.normal(position);
    });
  };
  switch (spec.init) {
    case Init::kOnes:
      return fill(parameter.value, 1.0f);  // of vectors, which are floats
    case Init::kZeros:
      return fill(parameter.value, 0.0f);
    case Init::kLogUniform:
      return fill_with(log_uniform);
    case Init::kNormal:
      return fill_normal(config.initializer_range);
    case Init::kByRank:
      return fill_normal(static_cast<double>(spec.groups) / static_cast<double>(spec.rows));
    case Init::kFanIn:
      return fill_with([bound = 1 / std::sqrt(static_cast<double>(spec.cols))](const CounterRandom& random,
                                                                               std::uint64_t position) {
        return bound * (2 * random.uniform(position) - 1);
      });
  }
}

}  // namespace

void initialise(ParameterStore& store, const ModelConfig& config, std::uint64_t seed) {
  for (const Parameter& parameter : store.parameters()) {
    initialise_one(parameter, config, seed);
    store.leave(parameter);
  }
  store.mark_changed();
}

void initialise_adapter(ParameterStore& store, const ModelConfig& config, std::uint64_t seed) {
  for (const Parameter& parameter : store.parameters())
    if (parameter.spec.adapter) initialise_one(parameter, config, seed);
  store.mark_changed();
}

}  // namespace moeloom
