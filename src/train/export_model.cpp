// A model as a plain Hugging Face folder: what others load, without the state of a run.
#include "moeloom/io/new_folder.hpp"
#include "moeloom/train/checkpoint.hpp"

#include "checkpoint_files.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

std::string dtype_key_value(DType type) {
  return type == DType::kBF16 ? "bfloat16" : type == DType::kF16 ? "float16" : "float32";
}

Document config_document(const ModelConfig& config, DType type) {
  Document document = config.to_document();
  document.set(document.has("torch_dtype") ? "torch_dtype" : "dtype", dtype_key_value(type));
  return document;
}

}  // namespace

void export_model(const fs::path& folder, const ParameterStore& store, const Mesh& mesh,
                  const ModelConfig& config, const WeightFormat& format) {
  const Communicator& world = mesh.world();
  const bool leads = world.rank() == 0;
  const fs::path partial = partial_folder(folder);
  try {
    agree(world, [&] {
      if (leads) begin_folder(folder);
    });
    save_weights(store, config, mesh, partial, format);
    agree(world, [&] {
      if (!leads) return;
      config_document(config, format.dtype).write(partial / kConfigFile);
      publish_folder(folder);
    });
  } catch (...) {
    if (leads) discard_folder(folder);
    throw;
  }
}

}  // namespace moeloom
