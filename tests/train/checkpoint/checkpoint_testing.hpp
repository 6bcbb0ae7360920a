// Runs at a mesh that tests save and load, with values that every mesh agrees on.
#pragma once

#include "model/freeze.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <functional>
#include <optional>

#include "support/file_size_limit.hpp"
#include "support/shared_folder.hpp"
#include "support/small_model.hpp"

namespace moeloom::testing {

/// One rank's part of a run at a mesh.
struct Trained {
  ModelConfig config = small_config();
  Mesh mesh;
  ParameterStore store;
  ShardedOptimizer optimizer;

  explicit Trained(const MeshShape& shape, const std::set<std::string>& frozen = {},
                   Storage masters = Storage::kFp32)
      : mesh(Communicator::world(), shape),
        store(
            with_storage(with_frozen(parameter_specs(config, experts_here(config, mesh)), frozen), masters)),
        optimizer(store, mesh, {}, {.keeping = {.masters = masters}}) {}

  std::filesystem::path save(const std::filesystem::path& folder, TrainerState state,
                             Index shard_bytes = kShardBytes) {
    return save_checkpoint({folder, shard_bytes}, store, optimizer, mesh, config, std::move(state));
  }
  TrainerState load(const std::filesystem::path& checkpoint) {
    return load_checkpoint(checkpoint, store, optimizer, mesh, config);
  }
};

/// f(what, HF name, element) of every value and owned moment: something that every mesh agrees on.
using Visit = std::function<void(const std::string& name, Index element, float& value)>;

inline void visit_moments(Trained& run, const std::string& what, std::span<float> moments,
                          const Visit& visit) {
  for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
    const Parameter& parameter = run.store.parameters()[static_cast<std::size_t>(block.parameter)];
    for (Index i = 0; i < block.count; ++i) {
      const Index element = block.begin - parameter.offset + i;
      const Index row = element / parameter.spec.cols;
      for (const HfSlice& slice : parameter.spec.slices)
        if (row >= slice.row_begin && row < slice.row_begin + slice.rows)
          visit(what + slice.name, element - slice.row_begin * parameter.spec.cols,
                moments[static_cast<std::size_t>(block.state + i)]);
    }
  }
}

inline void visit_everything(Trained& run, const Visit& visit) {
  Matrix memory;
  for (const Parameter& parameter : run.store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      const StoredRows rows = rows_of(parameter, slice);
      Matrix values = Matrix::copy_of(rows.read(memory));
      for (Index i = 0; i < rows.size(); ++i) visit(slice.name, i, values.view().data[i]);
      rows.write(values.view().flat());
    }
  visit_moments(run, "exp_avg.", run.optimizer.moments().words(Moment::kFirst), visit);
  visit_moments(run, "exp_avg_sq.", run.optimizer.moments().words(Moment::kSecond), visit);
}

inline float expected_value(const std::string& name, Index element) {
  return static_cast<float>(CounterRandom(3, stream_of(name)).normal(static_cast<std::uint64_t>(element)));
}

inline Index expected_time(Index parameter, Index global_group) {
  return 1 + 10 * parameter + global_group;
}

inline void fill_by_name(Trained& run) {
  visit_everything(run, [](const std::string& name, Index i, float& v) { v = expected_value(name, i); });
  for (std::size_t p = 0; p < run.store.parameters().size(); ++p)
    for (std::size_t g = 0; g < run.optimizer.times()[p].size(); ++g)
      run.optimizer.times()[p][g] =
          expected_time(static_cast<Index>(p), run.store.parameters()[p].spec.group_ids[g]);
}

inline Index differences(Trained& run) {
  Index count = 0;
  visit_everything(run, [&](const std::string& name, Index i, float& v) {
    count += v == expected_value(name, i) ? 0 : 1;
  });
  for (std::size_t p = 0; p < run.store.parameters().size(); ++p) {
    const ParameterSpec& spec = run.store.parameters()[p].spec;
    for (Index g = 0; g < spec.groups; ++g)
      count += run.optimizer.times()[p][static_cast<std::size_t>(g)] ==
                       expected_time(static_cast<Index>(p), spec.group_ids[at(g)])
                   ? 0
                   : 1;
  }
  return count;
}

inline TrainerState state_at(Index step) {
  TrainerState state;
  state.step = step;
  state.seed = 0xFFFFFFFFFFFFFFF0;
  state.data_file = "corpus.txt";
  state.data_bytes = 4321;
  state.global_batch = 16;
  state.sequence_length = 128;
  state.gmm_applied = true;
  state.gmm_reason = "a \"reason\"";
  state.settings.set("lr", 0.1);
  return state;
}

inline MeshShape any_mesh() {
  return all_meshes(Communicator::world().size()).back();
}

/// On rank 0, seen by all ranks afterwards.
inline void alone(const Communicator& world, const std::function<void()>& action) {
  world.barrier();
  if (world.rank() == 0) action();
  world.barrier();
}

inline std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const AgreedError& error) {
    return error.what();
  }
  return "";
}

}  // namespace moeloom::testing
