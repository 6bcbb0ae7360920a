// A tiny decoder whose experts all ranks of a communicator share.
#pragma once

#include "model/decoder.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"

#include <utility>

#include "support/golden_model.hpp"
#include "support/small_model.hpp"

namespace moeloom::testing {

inline Mesh whole_ep(Communicator world) {
  MeshShape shape;
  shape.ep = world.size();
  return Mesh(std::move(world), shape);
}

/// Weights large enough that every layer changes the logits.
inline ModelConfig loud_config() {
  ModelConfig config = tiny_config();
  config.initializer_range = 0.3;
  return config;
}

/// As loud_config().
inline ModelConfig loud_hybrid_config(const std::string& family) {
  ModelConfig config = hybrid_config(family);
  config.initializer_range = 0.3;
  return config;
}

/// The same model at every ep.
struct TinyModel {
  Mesh mesh;
  ModelConfig config;
  ParameterStore store;
  Decoder decoder;

  TinyModel(Communicator world, bool fused, const ModelConfig& like = loud_config())
      : mesh(whole_ep(std::move(world))),
        config(like),
        store(parameter_specs(config, experts_here(config, mesh))),
        decoder((initialise(store, config, 5), config), store, mesh, kernel_table(fused)) {}
};

/// One sequence of the first tokens, each the target of the one before.
inline Batch counting(std::int32_t tokens) {
  Batch batch;
  batch.sequences = 1;
  batch.sequence_length = tokens;
  for (std::int32_t i = 1; i <= tokens; ++i) {
    batch.input_ids.push_back(i);
    batch.targets.push_back(i + 1);
  }
  return batch;
}

}  // namespace moeloom::testing
