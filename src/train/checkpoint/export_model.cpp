// A model as a plain Hugging Face folder: what others load, without the state of a run.
#include "io/new_folder.hpp"
#include "model/hf/weights/word_files.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <optional>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/checkpoint_sums.hpp"

namespace moeloom {

namespace fs = std::filesystem;

void export_model(const fs::path& folder, const ParameterStore& store, const Mesh& mesh,
                  const ModelConfig& config, const WeightFormat& format, const WordFiles& words) {
  const Communicator& world = mesh.world();
  const bool leads = world.rank() == 0;
  const fs::path partial = partial_folder(folder);
  ModelConfig exported = config;
  // transformers' generate() fails where routers' logits are asked for. A config that transformers wrote
  // keeps what it says; one from flags, also by way of a checkpoint, asks for them only for training here.
  if (!config.source.has("transformers_version")) exported.output_router_logits = false;
  WeightFormat released = format;
  released.experts = released_experts(config);
  std::optional<NewFolder> made;  // rank 0 has it for all
  agree(world, [&] {
    if (leads) made.emplace(folder);
  });
  const std::vector<FilePiece> pieces = save_weights(store, config, mesh, partial, released);
  std::string sums;
  agree(world, [&] { sums = sums_text(partial, pieces); });
  const std::vector<std::string> sums_of_ranks = world.all_gather_text(sums);
  agree(world, [&] {
    if (!leads) return;
    write_config(exported, format.dtype, partial);
    write_word_files(words, partial);
    write_manifest(partial, sums_of_ranks);
    made->publish();
  });
}

}  // namespace moeloom
