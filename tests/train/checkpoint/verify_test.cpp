#include "train/checkpoint/verify.hpp"

#include "checkpoint/checkpoint_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

const std::vector<std::string> kFiles = {"config.json", "model.safetensors", "optimizer.safetensors",
                                         "trainer_state.json"};

/// A run with checkpoints of these steps.
struct SavedRun {
  explicit SavedRun(const std::vector<Index>& steps, Index shard_bytes = kShardBytes) : trained(any_mesh()) {
    fill_by_name(trained);
    for (const Index step : steps) trained.save(folder.path(), state_at(step), shard_bytes);
    world.barrier();
  }
  fs::path checkpoint(Index step) const { return folder.path() / ("checkpoint-" + std::to_string(step)); }

  Communicator world = Communicator::world();
  SharedFolder folder{world};
  Trained trained;
};

void flip(const fs::path& file, std::size_t at_byte) {
  std::string bytes = read_bytes(file);
  bytes[at_byte] ^= 1;
  write_bytes(file, bytes);
}

TEST(VerifyFolder, FindsACheckpointWholeAtEveryShardSize) {
  for (const Index shard_bytes : {kShardBytes, Index{2000}}) {
    const SavedRun run({1}, shard_bytes);
    const FolderCheck check = verify_folder(run.checkpoint(1), run.world);
    EXPECT_TRUE(check.has_manifest);
    EXPECT_EQ(check.damage(), "");
    Index bytes = 0;
    for (const auto& [name, size] : sizes_in(run.checkpoint(1))) bytes += size;
    EXPECT_EQ(check.bytes, bytes) << "every file but the manifest";
    EXPECT_TRUE(check.others.empty());
    EXPECT_EQ(check.files.size() == kFiles.size(), shard_bytes == kShardBytes);
  }
}

TEST(VerifyFolder, NamesTheFileThatIsDamagedCutOrMissing) {
  SavedRun run({1});
  std::vector<std::string> files = kFiles;
  files.push_back(kManifestFile);
  for (const std::string& file : files) {
    const fs::path path = run.checkpoint(1) / file;
    const std::string whole = read_bytes(path);
    run.world.barrier();
    alone(run.world, [&] { flip(path, whole.size() / 2); });
    EXPECT_TRUE(verify_folder(run.checkpoint(1), run.world).damage().starts_with(file + ": ")) << file;
    alone(run.world, [&] { write_bytes(path, whole.substr(0, whole.size() - 1)); });
    EXPECT_EQ(verify_folder(run.checkpoint(1), run.world).damage().empty(),
              file == kManifestFile)  // a line end more or less
        << file;
    alone(run.world, [&] { fs::remove(path); });
    const FolderCheck check = verify_folder(run.checkpoint(1), run.world);
    EXPECT_EQ(check.damage(), file == kManifestFile ? "" : file + ": is missing");
    EXPECT_EQ(check.has_manifest, file != kManifestFile);
    alone(run.world, [&] { write_bytes(path, whole); });
    EXPECT_TRUE(verify_folder(run.checkpoint(1), run.world).whole()) << file;
  }
}

TEST(VerifyFolder, NamesFilesThatNobodyListed) {
  SavedRun run({1});
  alone(run.world, [&] { write_bytes(run.checkpoint(1) / "tokenizer.json", "{}"); });
  const FolderCheck check = verify_folder(run.checkpoint(1), run.world);
  EXPECT_TRUE(check.whole());
  EXPECT_EQ(check.others, std::vector<std::string>{"tokenizer.json"});
}

TEST(VerifyFolder, SaysWhichBytesOfALargeFileAreDamaged) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  alone(world, [&] { write_bytes(folder.path() / "large", std::string(5 * kPieceBytes / 2, 'x')); });
  add_manifest(folder.path(), world);
  EXPECT_EQ(Manifest::read(folder.path()).files.at("large").pieces.size(), 3u);
  EXPECT_TRUE(verify_folder(folder.path(), world).whole());
  alone(world, [&] { flip(folder.path() / "large", kPieceBytes + 1); });
  EXPECT_EQ(verify_folder(folder.path(), world).damage(), "large: bytes " + std::to_string(kPieceBytes) +
                                                              " to " + std::to_string(2 * kPieceBytes) +
                                                              " are not what was written");
}

TEST(WholeCheckpoint, IsTheNewestThatIsWholeAndNamesThoseItPassesOver) {
  SavedRun run({1, 2, 3});
  EXPECT_EQ(whole_checkpoint(run.folder.path(), run.world).folder, run.checkpoint(3));
  alone(run.world, [&] {
    flip(run.checkpoint(3) / "optimizer.safetensors", 5000);
    fs::remove(run.checkpoint(2) / "trainer_state.json");
    fs::create_directory(run.checkpoint(9));
  });
  const CheckedFolder found = whole_checkpoint(run.folder.path(), run.world);
  EXPECT_EQ(found.folder, run.checkpoint(1));
  ASSERT_EQ(found.passed_over.size(), 3u);
  EXPECT_EQ(found.passed_over[0].folder, run.checkpoint(9));
  EXPECT_EQ(found.passed_over[0].reason,
            "checkpoint-9: has no config.json, no model.safetensors, no optimizer.safetensors, no "
            "trainer_state.json");
  EXPECT_TRUE(found.passed_over[1].reason.starts_with("optimizer.safetensors: bytes 0 to "));
  EXPECT_EQ(found.passed_over[2].reason, "trainer_state.json: is missing");
  Trained again(any_mesh());
  again.load(found.folder);
  EXPECT_EQ(differences(again), 0);
  alone(run.world, [&] { fs::resize_file(run.checkpoint(1) / "model.safetensors", 100); });
  const std::string text = failure_of([&] { whole_checkpoint(run.folder.path(), run.world); });
  EXPECT_NE(text.find("nothing whole is left in"), std::string::npos) << text;
  EXPECT_NE(text.find("checkpoint-1 is damaged: model.safetensors: has 100 bytes"), std::string::npos)
      << text;
}

TEST(WholeCheckpoint, HasNoSubstituteForAFolderThatWasNamed) {
  SavedRun run({1, 2});
  alone(run.world, [&] { flip(run.checkpoint(2) / "config.json", 10); });
  const std::string text = failure_of([&] { whole_checkpoint(run.checkpoint(2), run.world); });
  EXPECT_NE(text.find("checkpoint-2 is damaged: config.json"), std::string::npos) << text;
  EXPECT_EQ(whole_checkpoint(run.checkpoint(1), run.world).folder, run.checkpoint(1));
}

TEST(WholeCheckpoint, TakesWhatIsOlderThanManifestsUncheckedButMissesOneThatIsLost) {
  SavedRun run({1, 2});
  alone(run.world, [&] { fs::remove(run.checkpoint(2) / kManifestFile); });
  const CheckedFolder found = whole_checkpoint(run.folder.path(), run.world);
  EXPECT_EQ(found.folder, run.checkpoint(1));
  ASSERT_EQ(found.passed_over.size(), 1u);
  EXPECT_EQ(found.passed_over[0].reason, "checkpoint-2: has lost its manifest.json");
  EXPECT_EQ(whole_checkpoint(run.checkpoint(2), run.world).folder, run.checkpoint(2)) << "named itself";
  run.world.barrier();
  alone(run.world, [&] {
    Document state = Document::read(run.checkpoint(2) / "trainer_state.json");
    state.erase("manifest");
    state.write(run.checkpoint(2) / "trainer_state.json");
  });
  const CheckedFolder older = whole_checkpoint(run.folder.path(), run.world);
  EXPECT_EQ(older.folder, run.checkpoint(2));
  EXPECT_FALSE(older.check.has_manifest);
}

TEST(WholeCheckpoint, IsAModelFolderToo) {
  SavedRun run({1});
  const fs::path exported = run.folder.path() / "exported";
  export_model(exported, run.trained.store, run.trained.mesh, run.trained.config, {.dtype = DType::kBF16});
  const CheckedFolder found = whole_checkpoint(exported, run.world);
  EXPECT_EQ(found.folder, exported);
  EXPECT_TRUE(found.check.has_manifest);
  EXPECT_EQ(found.check.files.size(), 2u);
  alone(run.world, [&] { flip(exported / "model.safetensors", 3000); });
  EXPECT_NE(failure_of([&] { whole_checkpoint(exported, run.world); }), "");
  alone(run.world, [&] { fs::create_directory(run.folder.path() / "empty"); });
  const std::string text = failure_of([&] { whole_checkpoint(run.folder.path() / "empty", run.world); });
  EXPECT_NE(text.find("holds neither a complete checkpoint-<step> nor config.json"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace moeloom
