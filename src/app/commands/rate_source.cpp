#include "commands/rate_source.hpp"

#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include "open/model_folder.hpp"
#include "open/processors.hpp"

namespace moeloom {

ModelConfig checked_config(const ModelOptions& model) {
  const ModelConfig config = config_of(model);
  if (const auto violations = config_violations(config); !violations.empty()) throw ConfigError(violations);
  return config;
}

ModelConfig checked_config(const ModelOptions& model, const std::optional<AdapterSettings>& adapter) {
  ModelConfig config = checked_config(model);
  if (!adapter || config.adapter) return config;  // a run that has one goes on with it
  config.adapter = resolve_adapter(config, *adapter);
  const bool has_weights = !model.folder.empty() && !holds_config_alone(model.folder);
  const std::string said = config.source.text_or("torch_dtype", config.source.text_or("dtype", ""));
  config.adapter->base_stored = has_weights ? resting_storage(SafetensorsFolder(model.folder), config)
                                : said == "bfloat16" ? Storage::kBf16
                                : said == "float16"  ? Storage::kF16
                                                     : Storage::kFp32;
  return config;
}

void require_dtype(DType dtype, const RunFlags& flags) {
  if (dtype != DType::kBF16 || cpu_has_bf16() || flags.bf16 == Bf16Request::kEmulate) return;
  throw ConfigError({"--dtype bf16 cannot be measured here: " + std::string(why_no_bf16()) +
                     "; train would take fp32, so plan --dtype fp32"});
}

KernelTable usual_kernels(const ModelConfig& config, Index rows, DType dtype) {
  KernelTable table;
  KernelRegistry::builtin().apply_all("auto", table,
                                      {.model_type = config.model_type,
                                       .hidden_act = config.hidden_act,
                                       .has_experts = config.has_experts(),
                                       .fused_ops_enabled = true,
                                       .gmm = {.apply = true, .reason = {}},
                                       .rows = rows});
  if (dtype == DType::kBF16) table.dense = tiled_bf16_dense();
  return table;
}

Index processors_here() {
  return threads_for(0, std::nullopt, Communicator::self());
}

}  // namespace moeloom
