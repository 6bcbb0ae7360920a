#include "base/text.hpp"
#include "model/freeze.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "plan/memory/memory_need.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/verify.hpp"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "commands/families_table.hpp"
#include "commands/inspect_architecture.hpp"
#include "commands/rate_source.hpp"
#include "commands/show_examples.hpp"
#include "open/model_folder.hpp"
#include "record/exit_code.hpp"

namespace moeloom {
namespace {

/// Bytes of one rank by what they are for; activations come on top and grow with the tokens.
void print_memory(const ModelConfig& c, const InspectOptions& options, const std::set<std::string>& frozen) {
  const MeshShape mesh = {.dp = options.ranks / options.ep, .ep = options.ep};
  const std::vector<ParameterSpec> specs =
      with_frozen(parameter_specs(c, experts_of(std::max<Index>(c.num_experts, 1), options.ep, 0)), frozen);
  const LastingMemory need = lasting_memory(specs, {.layout = {.mesh = mesh}});
  std::printf("\nmemory of a rank for training, %s, %swithout activations\n", mesh.text().c_str(),
              frozen.empty() ? "" : "parts frozen, ");
  const auto part = [](const char* what, double bytes) {
    std::printf("  %-20s %12s\n", what, bytes_text(bytes).c_str());
  };
  part("weights, dense", need.dense_weights);
  if (need.expert_weights > 0) part("weights, experts", need.expert_weights);
  part("gradients", need.dense_gradients + need.expert_gradients);
  part("AdamW moments", need.moments);
  part("total", need.lasting());
  if (need.expert_weights > 0)
    std::printf("  and %s where packed experts pay: several micro-batches a step, within --gmm-budget\n",
                bytes_text(packed_bytes(specs, DType::kF32)).c_str());
}

void print_file(const SafetensorsFile& file) {
  std::printf("  file %s, %zu tensors, %s\n", file.path().filename().c_str(), file.tensors().size(),
              bytes_text(static_cast<double>(std::filesystem::file_size(file.path()))).c_str());
}

void print_tensor(const std::string& name, const TensorInfo& info, const std::string& where) {
  std::printf("  %-5s %-20s %s%s\n", std::string(name_of(info.dtype)).c_str(), shape_text(info.shape).c_str(),
              name.c_str(), where.c_str());
}

/// Each has its place in the model, or this throws.
void print_adapter_tensors(const std::filesystem::path& folder, const ModelConfig& config) {
  const SafetensorsFile file = checked_adapter(folder, config);
  std::printf("\ntensors of the adapter: %zu, all with a place in the model\n", file.tensors().size());
  print_file(file);
  for (const auto& [name, info] : file.tensors()) print_tensor(name, info, "");
}

void print_tensors(const std::filesystem::path& folder, const ModelConfig& config) {
  const SafetensorsFolder tensors(folder);
  const WeightCoverage coverage = check_weights(tensors, config);
  std::printf("\ntensors: %lld expected, %lld found, %zu unused, %lld carried\n",
              static_cast<long long>(coverage.expected), static_cast<long long>(coverage.found),
              coverage.unused.size(), static_cast<long long>(coverage.carried));
  if (coverage.scales > 0 || coverage.of_activations > 0)
    std::printf(
        "  and %lld with scales of those in FP8, %lld with scales of activations, which are passed over\n",
        static_cast<long long>(coverage.scales), static_cast<long long>(coverage.of_activations));
  const bool sharded = tensors.files().size() > 1;
  for (const SafetensorsFile& file : tensors.files()) print_file(file);
  for (const std::string& name : tensors.names())
    print_tensor(name, tensors.info(name),
                 sharded ? "  " + tensors.file_of(name).path().filename().string() : std::string());
}

/// Of a folder without weights, which would have shown what does not fit together.
ModelConfig config_by_itself(const std::filesystem::path& folder, const InspectOptions& options) {
  ModelOptions model;
  model.folder = folder;
  model.ignored_keys = options.ignored_keys;
  return checked_config(model);
}

void print_no_tensors(const std::filesystem::path& folder, const ModelConfig& config) {
  std::printf("\ntensors: %zu expected, none found: %s holds no weights\n", tensor_specs(config).size(),
              folder.string().c_str());
}

void print_state(const char* state, const std::string& name, const std::string& what) {
  std::printf("  %-9s  %-32s %s\n", state, name.c_str(), what.c_str());
}

void print_check(const CheckedFolder& checked) {
  const FolderCheck& check = checked.check;
  std::printf("%s\n", checked.folder.c_str());
  for (const CheckedFile& file : check.files)
    print_state(file.damage.empty() ? "whole" : "damaged", file.name,
                file.damage.empty() ? bytes_text(static_cast<double>(file.bytes)) : file.damage);
  for (const std::string& name : check.others) print_state("unknown", name, "not in the manifest");
  if (!check.has_manifest)
    std::printf("  has no %s: nothing could be compared\n", kManifestFile);
  else
    std::printf("  %s read in %.3f s, %.0f MB/s\n", bytes_text(static_cast<double>(check.bytes)).c_str(),
                check.seconds, static_cast<double>(check.bytes) / 1e6 / std::max(check.seconds, 1e-9));
}

int verify(const std::filesystem::path& path) {
  bool all_whole = true;
  for (const CheckedFolder& checked : check_all(path, Communicator::self())) {
    print_check(checked);
    all_whole = all_whole && checked.check.has_manifest && checked.check.whole();
  }
  return all_whole ? 0 : kDataExitCode;
}

/// How a folder's texts and conversations are read, before what becomes of a file's.
void print_reading(const ModelConfig& config, const ModelText& text) {
  for (const std::string& remark : config.remarks) std::printf("config                 %s\n", remark.c_str());
  if (text.is_bytes()) return;
  const std::vector<std::uint32_t> around = text.tokenizer()->encode("", true);
  std::string names;
  for (const std::uint32_t id : around)
    names += " " + text.tokenizer()->token_of(id).value_or(std::to_string(id));
  std::printf("added to a text       %s\n", names.empty() ? " nothing" : names.c_str());
  if (!text.chat().has_template()) return std::printf("chat template          none\n"), void();
  const ChatTemplate& chat_template = text.chat().chat_template(false);
  std::printf("chat template          %s, %s; %s\n\n", chat_template.name().c_str(),
              chat_template.marks_assistant() ? "which marks what the assistant says"
                                              : "without marks: turns are found by rendering",
              chat_template.takes_parts() ? "it takes contents in parts" : "contents in parts are joined");
}

int show_data(const InspectOptions& options) {
  const bool config_alone = holds_config_alone(options.model);
  const std::filesystem::path folder = config_alone ? options.model : resolve_checkpoint(options.model);
  const ModelConfig config = ModelConfig::read(folder, options.ignored_keys);
  const ModelText text = ModelText::of(folder, config, "", options.ignored_keys);
  print_reading(config, text);
  const RecordReader reader(text, options.rows, options.ignored_keys, day_of(options.data.front().file));
  show_examples(options.data, reader, text,
                {.examples = options.examples,
                 .sequence_length = options.sequence_length,
                 .in_colour = isatty(STDOUT_FILENO) != 0});
  return 0;
}

}  // namespace

int inspect_command(int argc, char** argv) {
  const InspectOptions options = parse_inspect_options(argc, argv);
  if (options.families) return print_families();
  if (options.verify) return verify(options.model);
  if (!options.data.empty()) return show_data(options);
  const bool config_alone = holds_config_alone(options.model);
  const std::filesystem::path folder = config_alone ? options.model : resolve_checkpoint(options.model);
  const ModelConfig config =
      config_alone ? config_by_itself(folder, options) : ModelConfig::read(folder, options.ignored_keys);
  MeshShape mesh;
  mesh.ep = options.ep;
  mesh.dp = 0;
  const auto violations = mesh_violations(mesh, options.ranks, config.has_experts() ? config.num_experts : 0);
  if (!violations.empty()) throw ConfigError(violations);
  const auto frozen = matching_parameters(parameter_specs(config, {0, config.num_experts}), options.freeze);
  print_architecture(folder, config);
  print_memory(config, options, frozen);
  if (config_alone)
    print_no_tensors(folder, config);
  else if (config.adapter)
    print_adapter_tensors(folder, config);
  else
    print_tensors(folder, config);
  return 0;
}

}  // namespace moeloom
