#include "moeloom/app/commands.hpp"
#include "moeloom/app/options.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/train/checkpoint.hpp"

#include <cstdio>

namespace moeloom {
namespace {

std::string shape_text(const std::vector<Index>& shape) {
  std::string text;
  for (const Index n : shape) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text.empty() ? "[]" : text + "]";
}

void print_architecture(const std::filesystem::path& folder, const ModelConfig& c) {
  Index sparse = 0;
  for (Index layer = 0; layer < c.num_hidden_layers; ++layer) sparse += c.is_sparse(layer) ? 1 : 0;
  const auto line = [](const char* what, const std::string& value) {
    std::printf("%-22s %s\n", what, value.c_str());
  };
  const auto number = [&](const char* what, Index value) { line(what, std::to_string(value)); };
  line("folder", folder.string());
  line("model_type", c.model_type);
  line("layers", std::to_string(c.num_hidden_layers) + " (" + std::to_string(sparse) + " sparse, " +
                     std::to_string(c.num_hidden_layers - sparse) + " dense)");
  number("hidden_size", c.hidden_size);
  line("heads", std::to_string(c.num_attention_heads) + " of " + std::to_string(c.head_dim) + ", " +
                    std::to_string(c.num_key_value_heads) + " for keys and values");
  if (sparse > 0)
    line("experts", std::to_string(c.num_experts) + " of size " + std::to_string(c.moe_intermediate_size) +
                        ", top-" + std::to_string(c.num_experts_per_tok));
  number("vocab_size", c.vocab_size);
  line("head", c.tie_word_embeddings ? "tied to the embeddings" : "its own");
  number("parameters", c.total_parameters());
  number("  active a token", c.active_parameters());
}

/// Bytes of one rank by what they are for; activations come on top and grow with the tokens.
void print_memory(const ModelConfig& c, const InspectOptions& options) {
  MeshShape mesh;
  mesh.ep = options.ep;
  mesh.dp = options.ranks / options.ep;
  double dense = 0;
  double experts = 0;
  for (const ParameterSpec& spec :
       parameter_specs(c, experts_of(std::max<Index>(c.num_experts, 1), mesh.ep, 0)))
    (spec.placement == Placement::kWorld ? dense : experts) += static_cast<double>(spec.rows * spec.cols);
  const double f = sizeof(float);
  const double moments =
      2 * f * (dense / static_cast<double>(options.ranks) + experts / static_cast<double>(mesh.dp));
  const double total = 2 * f * (dense + experts) + moments + 2 * f * experts;
  std::printf("\nmemory of a rank for training, %s, without activations\n", mesh.text().c_str());
  const auto line = [](const char* what, double bytes) {
    std::printf("  %-20s %12s\n", what, bytes_text(bytes).c_str());
  };
  line("weights, dense", f * dense);
  line("weights, experts", f * experts);
  line("gradients", f * (dense + experts));
  line("AdamW moments", moments);
  line("packed experts (GMM)", 2 * f * experts);
  line("total", total);
}

void print_tensors(const std::filesystem::path& folder, const ModelConfig& config) {
  const SafetensorsFolder tensors(folder);
  const WeightCoverage coverage = check_weights(tensors, config);
  std::printf("\ntensors: %lld expected, %lld found, %zu unused\n", static_cast<long long>(coverage.expected),
              static_cast<long long>(coverage.found), coverage.unused.size());
  const bool sharded = tensors.files().size() > 1;
  for (const SafetensorsFile& file : tensors.files())
    std::printf("  file %s, %zu tensors, %s\n", file.path().filename().c_str(), file.tensors().size(),
                bytes_text(static_cast<double>(std::filesystem::file_size(file.path()))).c_str());
  for (const std::string& name : tensors.names()) {
    const TensorInfo& info = tensors.info(name);
    const std::string file =
        sharded ? "  " + tensors.file_of(name).path().filename().string() : std::string();
    std::printf("  %-5s %-20s %s%s\n", std::string(name_of(info.dtype)).c_str(),
                shape_text(info.shape).c_str(), name.c_str(), file.c_str());
  }
}

}  // namespace

int inspect_command(int argc, char** argv) {
  const InspectOptions options = parse_inspect_options(argc, argv);
  const std::filesystem::path folder = resolve_checkpoint(options.model);
  const ModelConfig config = ModelConfig::read(folder);
  MeshShape mesh;
  mesh.ep = options.ep;
  mesh.dp = 0;
  const auto violations = mesh_violations(mesh, options.ranks, config.has_experts() ? config.num_experts : 0);
  if (!violations.empty()) throw ConfigError(violations);
  print_architecture(folder, config);
  print_memory(config, options);
  print_tensors(folder, config);
  return 0;
}

}  // namespace moeloom
