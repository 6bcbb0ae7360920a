// Adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors, in which each
// module that is adapted has lora_A.weight [r, in] and lora_B.weight [out, r] behind its name. Of experts
// that a model keeps in a stack [E, ., .] it is lora_A.weight [E r, in], an expert after the other, and
// lora_B.weight [out, r E], in which column j E + e is column j of expert e (PEFT's target_parameters). In
// some versions of PEFT and for some models in and out are the other way round there: A is [E r, out] and B
// [in, r E], of which B^T A^T is added.
#pragma once

#include "model/hf/weights/weights_io.hpp"

namespace moeloom {

inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// A linear module of a model's files, or a stack of experts, whose weight can have an adapter.
struct AdaptableModule {
  std::string name;       // "model.layers.0.mlp.experts.3.gate_proj", "model.layers.0.mlp.experts.down_proj"
  std::string kind;       // attention, mlp, experts, shared, router or per_layer
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
/// Where the folder says that the model is (base_model_name_or_path). Throws IoError.
std::filesystem::path base_of_adapter(const std::filesystem::path& folder);
/// Names of tensors and their shapes.
using TensorShapes = std::map<std::string, std::vector<Index>>;
/// What an adapter_config.json, `file` in errors, says beside these tensors, and the modules of the model
/// that those are of; config: the model's, without an adapter. Throws IoError for what the document lacks,
/// ConfigError by key for what is not supported (other kinds of adapters, trained biases, saved modules), and
/// for unknown keys that say something but for those in `ignored`.
AdapterSettings adapter_settings(const Document& document, const TensorShapes& tensors,
                                 const ModelConfig& config, const std::string& file,
                                 const std::set<std::string>& ignored = {});
/// The same of a folder's files. Throws IoError for those, too.
AdapterSettings read_adapter_settings(const std::filesystem::path& folder, const ModelConfig& config,
                                      const std::set<std::string>& ignored = {});
/// What PEFT reads beside the tensors. Beside stacks of experts it says no dropout, which PEFT refuses there.
Document adapter_document(const ModelConfig& config);

/// What an adapter of new factors calls the modules of a family that only transformers 5 has, where PEFT 0.20
/// finds them by no other names: those in memory, and experts as stacks where it does not know their list;
/// none: as the folder does.
std::optional<CheckpointNames> names_in_peft(const ModelConfig& config);
/// Whether it finds the factors of a linear module only where "target_parameters" names its weight.
bool is_parameter_in_peft(const ModelConfig& config, const AdaptableModule& module);

/// Kinds of modules whose factors PEFT 0.20 does not load into its model, each with where that is so.
std::vector<std::string> lost_in_peft(const ModelConfig& config);

/// A and B of every module, as the file has them. config.adapter is there.
std::vector<TensorSpec> adapter_tensor_specs(const ModelConfig& config, DType dtype = DType::kF32);

/// How many modules have no factors while the same module of other experts has: nothing is added to them.
Index modules_left_out(const ModelConfig& config);

/// The file of `folder`'s factors, of which every one has its place in the model. Throws ConfigError that
/// lists every tensor that is missing, unexpected, or of another shape: an adapter of which a part finds no
/// place would train or answer without it.
SafetensorsFile checked_adapter(const std::filesystem::path& folder, const ModelConfig& config);

/// This rank's factors from `folder`, to go on training. Throws as checked_adapter(), and ConfigError where
/// experts of a layer have different ranks, or some have none.
void load_adapter(ParameterStore& store, const std::filesystem::path& folder, const ModelConfig& config,
                  PositionBoard* board = nullptr);

struct FactorPair;

/// What an adapter adds to tensors of the model's folder, which are given one by one.
class AdapterMerge {
 public:
  /// config.adapter is the one in `adapter`. Throws as checked_adapter() does.
  AdapterMerge(const std::filesystem::path& adapter, const ModelConfig& config);
  ~AdapterMerge();
  AdapterMerge(AdapterMerge&&) noexcept;
  /// The tensors that it changes.
  std::set<std::string> tensors() const;
  /// values: all of that tensor, as the folder has it.
  void add_to(const std::string& tensor, std::span<float> values) const;

 private:
  struct Addition;
  void add(const FactorPair& pair, const ParameterSpec& weight);  // whose slices are in the order of its rows

  AdapterSettings settings_;
  SafetensorsFile file_;
  std::map<std::string, std::vector<Addition>> additions_;
};

/// W += s B A of the adapter in `folder` to the parameters of a store without adapters, which holds the
/// weights of some experts. config.adapter is the folder's. Throws as checked_adapter() does.
void merge_adapter(ParameterStore& store, const std::filesystem::path& folder, const ModelConfig& config,
                   PositionBoard* board = nullptr);

}  // namespace moeloom
