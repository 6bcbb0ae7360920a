// The parameters of a model, and how they are stored.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/job/mesh_shape.hpp"
#include "moeloom/model/hf/config.hpp"

#include <vector>

namespace moeloom {

/// Every parameter of the model on a rank that holds `experts`; {0, num_experts} lists the whole model. With
/// config.adapter its factors follow the model's own parameters, which are then frozen.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, ExpertRange experts);
/// The whole model's without those of an adapter, beside which they would be frozen.
std::vector<ParameterSpec> own_parameters(ModelConfig config);

/// Keeps the trained weights of large products, and tables of words, as `masters` says; the frozen ones as
/// `frozen` says, unless it is kFp32.
std::vector<ParameterSpec> with_storage(std::vector<ParameterSpec> specs, Storage masters,
                                        Storage frozen = Storage::kFp32);

/// Keeps the gradients of trained weights of experts, but for biases and factors of adapters, as `gradients`
/// says.
std::vector<ParameterSpec> with_gradients(std::vector<ParameterSpec> specs, Storage gradients);

}  // namespace moeloom
