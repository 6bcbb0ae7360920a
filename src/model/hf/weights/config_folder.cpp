// A folder to ModelConfig: its config.json, what its tensors are called, and where they decide against it.
#include "model/hf/family.hpp"
#include "model/hf/stored/stored_tensor.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <map>

namespace moeloom {
namespace {

/// Whether stacks lie as 5.15 has them: with 2F = D or F = D one of the two has a shape that tells still.
bool is_turned(const SafetensorsFolder& folder, const std::vector<std::string>& names,
               const ModelConfig& config) {
  const StackNames& stack = config.family().moe->stack;
  const Index experts = config.num_experts, d = config.hidden_size, f = config.moe_intermediate_size;
  const auto tells = [&](const std::string& end, Index rows, Index cols) {
    return rows != cols && std::ranges::any_of(names, [&](const std::string& name) {
             return name.ends_with("." + end) &&
                    folder.info(name).shape == std::vector<Index>{experts, rows, cols};
           });
  };
  return tells(stack.gate_up, 2 * f, d) || tells(stack.down, d, f);
}

CheckpointNames names_in(std::shared_ptr<const SafetensorsFolder> source, const ModelConfig& config) {
  std::vector<std::string> of_text, beside;
  for (const std::string& name : source->names())
    if (is_carried(config, name) && !is_scale(*source, config.stored, name))
      beside.push_back(name);
    else if (!is_scale(*source, config.stored, name) && !is_of_activations(config.stored, name))
      of_text.push_back(name);
  CheckpointNames names = checkpoint_names(config.family(), of_text);
  const std::optional<MoeRule>& rule = config.family().moe;
  if (rule && rule->either_way && names.experts == ExpertLayout::kStackedTransposed &&
      is_turned(*source, of_text, config))
    names.experts = ExpertLayout::kStacked;
  if (!beside.empty()) names.carried = {std::move(source), std::move(beside)};
  return names;
}

/// Elements that are compared at once.
constexpr Index kPiece = Index{1} << 16;

/// Of two tensors of one shape in different formats, whether any number differs.
bool values_differ(const SafetensorsFolder& folder, const std::string& one, const std::string& other) {
  const Index all = folder.info(one).elements();
  std::vector<float> first, second;
  for (Index begin = 0; begin < all; begin += kPiece) {
    first.resize(at(std::min(kPiece, all - begin)));
    second.resize(first.size());
    folder.read(one, begin, first);
    folder.read(other, begin, second);
    if (first != second) return true;
  }
  return false;
}

/// Whether both are there, of one shape, and differ. Also a copy that was rounded to another format does:
/// 5.15 computes with what is stored.
bool differ(const SafetensorsFolder& folder, const std::string& one, const std::string& other) {
  if (!folder.has(one) || !folder.has(other)) return false;
  const TensorInfo &first = folder.info(one), &second = folder.info(other);
  if (first.shape != second.shape) return false;
  if (first.dtype != second.dtype && !(is_weight_type(first.dtype) && is_weight_type(second.dtype)))
    return true;
  const bool alike = first.dtype == second.dtype
                         ? std::ranges::equal(folder.file_of(one).raw(one), folder.file_of(other).raw(other))
                         : !values_differ(folder, one, other);
  folder.forget();
  return !alike;
}

/// A stored head that is not the embedding is the model's own, whatever the config says: so 5.15 reads it,
/// where 4.57 drops it.
void untie_own_head(const SafetensorsFolder& folder, ModelConfig& config) {
  const FilePrefix& prefix = config.names.prefix;
  const std::string embeddings = prefix.body + "embed_tokens.weight";
  if (!config.tie_word_embeddings || !differ(folder, prefix.head, embeddings)) return;
  config.tie_word_embeddings = false;
  config.remarks.push_back(prefix.head + " is another matrix than " + embeddings +
                           ", which tie_word_embeddings = true says it is: it is read as a head of its own");
}

void remark_names(const SafetensorsFolder& folder, ModelConfig& config) {
  const std::string &own = config.family().prefix.body, &found = config.names.prefix.body;
  if (own != found)
    config.remarks.push_back("names of tensors begin with \"" + found + "\", where transformers has \"" +
                             own + "\" for " + config.model_type + ": they are read so, and written so");
  if (folder.absent().empty()) return;
  config.remarks.push_back(std::string(kWeightsIndexFile) + " names " +
                           std::to_string(folder.absent().size()) +
                           " tensors that are in no shard, the first of them " + folder.absent().front());
}

void remark_carried(ModelConfig& config) {
  std::map<std::string, Index> counts;
  for (const std::string& name : config.names.carried.names) ++counts[carried_by(config, name)];
  if (counts.empty()) return;
  std::string list;
  for (const auto& [pattern, count] : counts)
    list += (list.empty() ? "" : ", ") + pattern + ": " + std::to_string(count);
  config.remarks.push_back(std::to_string(config.names.carried.names.size()) + " tensors beside the model (" +
                           list + ") are not trained, and written back with it");
}

void remark_form(const SafetensorsFolder& folder, ModelConfig& config) {
  Index scaled = 0, passed_over = 0;
  for (const std::string& name : folder.names()) {
    scaled += has_scales(folder, config.stored, name) ? 1 : 0;
    passed_over += is_of_activations(config.stored, name) && !is_carried(config, name) ? 1 : 0;
  }
  if (scaled > 0)
    config.remarks.push_back(
        std::to_string(scaled) + " tensors are in FP8 with " + config.stored.text() +
        ": they are read as numbers times scales, and written without quantization_config");
  if (passed_over > 0)
    config.remarks.push_back(std::to_string(passed_over) +
                             " tensors with scales of activations or caches are passed over: nothing here is "
                             "computed in FP8");
}

bool holds_weights(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / kWeightsFile) ||
         std::filesystem::exists(folder / kWeightsIndexFile);
}

void read_names(const std::filesystem::path& path, ModelConfig& config) {
  if (!holds_weights(path)) return;
  const auto folder = std::make_shared<const SafetensorsFolder>(path);
  config.names = names_in(folder, config);
  untie_own_head(*folder, config);
  remark_names(*folder, config);
  remark_carried(config);
  remark_form(*folder, config);
}

ModelConfig read_adapted(const std::filesystem::path& folder, const std::set<std::string>& ignored) {
  const std::filesystem::path base = base_of_adapter(folder);
  if (!std::filesystem::exists(base / "config.json"))
    throw IoError(folder.string() + " holds an adapter of \"" + base.string() +
                  "\" (base_model_name_or_path), which is no folder with config.json here");
  if (std::error_code unread; std::filesystem::equivalent(base, folder, unread))
    throw ConfigError(
        {folder.string() + ": " + kAdapterConfigFile +
         " says that the folder itself is its base (base_model_name_or_path); name the model's"});
  ModelConfig config = ModelConfig::read(base, ignored);
  AdapterSettings settings = read_adapter_settings(folder, config, ignored);
  settings.base_stored = resting_storage(SafetensorsFolder(base), config);
  config.adapter = std::move(settings);
  if (holds_weights(folder))
    config.remarks.push_back("the weights in " + folder.string() + " are passed over: its " +
                             kAdapterConfigFile + " says that they are those of " + base.string() +
                             " (base_model_name_or_path) and an adapter; without that file they are read");
  return config;
}

}  // namespace

ModelConfig ModelConfig::read(const std::filesystem::path& folder, const std::set<std::string>& ignored) {
  if (holds_adapter(folder)) return read_adapted(folder, ignored);
  const std::filesystem::path path = folder / "config.json";
  const Document document = Document::read(path);
  ModelConfig config;
  try {
    config = from(document, ignored);
  } catch (const ConfigError& error) {
    std::vector<std::string> violations = error.violations();
    for (std::string& violation : violations) violation = path.string() + ": " + violation;
    throw ConfigError(violations, Cause::kData);
  }
  read_names(folder, config);
  return config;
}

}  // namespace moeloom
