// Adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors, in which each
// module that is adapted has lora_A.weight [r, in] and lora_B.weight [out, r] behind its name. Of experts
// that a model keeps in a stack [E, ., .] it is lora_A.weight [E r, in], an expert after the other, and
// lora_B.weight [out, r E], in which column j E + e is column j of expert e (PEFT's target_parameters; before
// 0.19.1 in and out were the other way round in stacks [E, out, in]).
#pragma once

#include "moeloom/model/hf/weights_io.hpp"

namespace moeloom {

inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// A linear module of a model's files, or a stack of experts, whose weight can have an adapter.
struct AdaptableModule {
  std::string name;       // "model.layers.0.mlp.experts.3.gate_proj", "model.layers.0.mlp.experts.down_proj"
  std::string kind;       // attention, mlp, experts, shared or router
  std::string parameter;  // of a stack: its tensor; else empty
};
/// All of the model, in the order of its parameters.
std::vector<AdaptableModule> adaptable_modules(const ModelConfig& config);

/// Settings with the modules that their targets mean in this model. Throws ConfigError with every target
/// that means none, and for a rank or alpha that is not positive.
AdapterSettings resolve_adapter(const ModelConfig& config, AdapterSettings settings);

/// How frozen weights keep every bit of a folder: as kBf16 or kF16, if every weight that could have an
/// adapter, but for routers, and both tables of words are so there; else as kFp32.
Storage resting_storage(const SafetensorsFolder& folder, const ModelConfig& config);

bool holds_adapter(const std::filesystem::path& folder);
/// What an adapter_config.json, `file` in errors, says beside tensors of these names, and the modules that
/// those are of. Throws IoError for what it lacks, ConfigError by key for what is not supported (other kinds
/// of adapters, ranks by module, trained biases, saved modules).
AdapterSettings adapter_settings(const Document& document, const std::set<std::string>& tensors,
                                 const std::string& file);
/// The same of a folder's files. Throws IoError for those, too.
AdapterSettings read_adapter_settings(const std::filesystem::path& folder);
/// What PEFT reads beside the tensors. Beside stacks of experts it says no dropout, which PEFT refuses there.
Document adapter_document(const ModelConfig& config);

/// A and B of every module, as the file has them. config.adapter is there.
std::vector<TensorSpec> adapter_tensor_specs(const ModelConfig& config, DType dtype = DType::kF32);

/// The file of `folder`'s factors, of which every one has its place in the model. Throws as load_adapter().
SafetensorsFile checked_adapter(const std::filesystem::path& folder, const ModelConfig& config);

/// This rank's factors from `folder`. Throws ConfigError that lists every tensor that is missing, unexpected,
/// or of another shape: an adapter of which a part finds no place would train or answer without it.
void load_adapter(ParameterStore& store, const std::filesystem::path& folder, const ModelConfig& config,
                  PositionBoard* board = nullptr);

/// The factors of single modules, read as they are asked for.
class AdapterFile {
 public:
  /// Throws as read_adapter_settings() does.
  explicit AdapterFile(const std::filesystem::path& folder);
  const AdapterSettings& settings() const { return settings_; }
  /// weight [out, in] += s B A, of the factors that lie in these slices. Throws ShapeError for factors of
  /// other shapes.
  void add_product(const HfSlice& a, const HfSlice& b, MatrixView weight) const;
  /// The same of a module's whole matrix, and of each expert of a stack as a file has it: weights
  /// [E * out, in], or [E * in, out] where the layout is transposed or interleaved.
  void add_to(const std::string& module, MatrixView weight) const;
  void add_to_stack(const std::string& module, Index experts, SliceLayout layout, MatrixView weights) const;

 private:
  AdapterSettings settings_;
  SafetensorsFile file_;
};

/// W += s B A of the adapter in `folder` to the parameters of a store without adapters, which holds the
/// weights of `experts` (parameters.hpp). config.adapter is the folder's. Throws as load_adapter() does.
void merge_adapter(ParameterStore& store, const std::filesystem::path& folder, const ModelConfig& config,
                   PositionBoard* board = nullptr);

}  // namespace moeloom
