// Folders laid out as released ones are: the same model's logits, and its other towers carried.
#include "model/decoder.hpp"
#include "model/hf/weights_io.hpp"
#include "moeloom/io/safetensors.hpp"

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Of every root that has them.
std::vector<fs::path> released_folders() {
  std::vector<fs::path> folders;
  for (const fs::path& root : testing::golden_roots(std::getenv("MOELOOM_GOLDEN")))
    if (fs::is_directory(root / "hub"))
      for (const fs::directory_entry& entry : fs::directory_iterator(root / "hub"))
        folders.push_back(entry.path());
  EXPECT_FALSE(folders.empty());
  return folders;
}

/// By the loader that a run uses.
Matrix logits_of(const fs::path& folder, const Batch& batch) {
  const Mesh mesh(Communicator::world(), {.dp = Communicator::world().size()});
  const ModelConfig config = ModelConfig::read(folder);
  ParameterStore store(parameter_specs(config, mesh.experts(config.num_experts)));
  load_weights(store, SafetensorsFolder(folder), config);
  Decoder decoder(config, store, mesh, testing::kernel_table(true));
  return decoder.logits(batch);
}

TEST(GoldenHub, ReleasedFoldersAreTheModelsOfTheSameName) {
  for (const fs::path& folder : released_folders()) {
    SCOPED_TRACE(folder.string());
    const fs::path model = folder.parent_path().parent_path() / "models" / folder.filename();
    const Batch batch = testing::golden_batch(model, Communicator::world());
    const Matrix logits = logits_of(folder, batch), expected = logits_of(model, batch);
    EXPECT_TRUE(std::ranges::equal(logits.view().flat(), expected.view().flat()));
  }
}

TEST(GoldenHub, WhatIsNotTextIsCarried) {
  for (const fs::path& folder : released_folders()) {
    SCOPED_TRACE(folder.string());
    const SafetensorsFolder tensors(folder);
    const ModelConfig config = ModelConfig::read(folder);
    const WeightCoverage coverage = check_weights(tensors, config);
    EXPECT_TRUE(coverage.missing.empty() && coverage.unused.empty());
    EXPECT_EQ(static_cast<std::size_t>(coverage.expected + coverage.carried), tensors.names().size());
    const auto of_other_towers = std::ranges::count_if(tensors.names(), [](const std::string& name) {
      return name.starts_with("mtp.") || name.find("vis") != std::string::npos ||
             name.find("audio") != std::string::npos;
    });
    EXPECT_EQ(coverage.carried, of_other_towers);
  }
}

}  // namespace
}  // namespace moeloom
