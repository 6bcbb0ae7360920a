// Which kernel computes each module of a model, for people: equal layers in one row.
#pragma once

#include "moeloom/kernels/registry.hpp"
#include "moeloom/model/hf/config.hpp"

namespace moeloom {

struct ModuleRow {
  std::string layers;  // "layers 0-2, 5"; empty: outside the layers
  std::string module;  // as a checkpoint of the family calls it: "self_attn.q_proj, k_proj, v_proj"
  std::string kernel;  // the id; "reference" or "native" where none applies
  std::string what;    // what the module computes, and why no kernel applies where none does
};

/// Built from what the decoder is built from; the reports say which kernels apply. In the order of a forward
/// pass.
std::vector<ModuleRow> kernel_modules(const ModelConfig& config, const std::vector<KernelReport>& reports);

}  // namespace moeloom
