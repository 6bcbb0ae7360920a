#include "train/checkpoint/checkpoint.hpp"

#include "base/checksum.hpp"
#include "io/manifest.hpp"
#include "io/new_folder.hpp"
#include "io/text_file.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "train/checkpoint/verify.hpp"

#include <limits>

#include "checkpoint/checkpoint_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace testing;

TEST(Checkpoint, KeepsEveryBitFromAnyMeshToAnyMesh) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Index step = 0;
  for (const MeshShape& saved_at : all_meshes(world.size())) {
    Trained first(saved_at);
    fill_by_name(first);
    const fs::path path = first.save(folder.path(), state_at(++step));
    EXPECT_EQ(path, folder.path() / ("checkpoint-" + std::to_string(step)));
    for (const MeshShape& loaded_at : all_meshes(world.size())) {
      Trained second(loaded_at);
      const TrainerState state = second.load(path);
      EXPECT_EQ(differences(second), 0) << saved_at.text() << " to " << loaded_at.text();
      EXPECT_EQ(state.mesh.ep, saved_at.ep);
    }
  }
}

/// Floats, whatever a run keeps: only bf16 rounds, and nothing is called damaged for it.
TEST(Checkpoint, KeepsTheMastersOfEveryKind) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Index step = 0;
  for (const Storage saved_as : kStorages) {
    Trained first(any_mesh(), {}, saved_as);
    fill_by_name(first);
    const fs::path path = first.save(folder.path(), state_at(++step));
    for (const Storage loaded_as : kStorages) {
      SCOPED_TRACE(std::string(name_of(saved_as)) + " to " + std::string(name_of(loaded_as)));
      Trained second(any_mesh(), {}, loaded_as);
      second.load(path);
      const bool rounded = saved_as == Storage::kBf16 || loaded_as == Storage::kBf16;
      EXPECT_EQ(differences(second) > 0, rounded);
      Matrix memory;
      for (const Parameter& parameter : second.store.parameters())
        for (const HfSlice& slice : parameter.spec.slices) {
          const bool is_bf16 =
              rounded && with_storage({parameter.spec}, Storage::kBf16)[0].stored == Storage::kBf16;
          const auto found = rows_of(parameter, slice).read(memory).flat();
          for (Index i = 0; i < std::ssize(found); ++i) {
            const float expected = expected_value(slice.name, i);
            ASSERT_EQ(found[at(i)], is_bf16 ? bf16_to_float(float_to_bf16(expected)) : expected)
                << slice.name;
          }
        }
    }
  }
}

TEST(Checkpoint, ResumesFromShards) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained first(any_mesh());
  fill_by_name(first);
  const fs::path path = first.save(folder.path(), state_at(1), 2000);
  EXPECT_TRUE(is_checkpoint(path));
  EXPECT_FALSE(fs::exists(path / "model.safetensors"));
  EXPECT_TRUE(fs::exists(path / "model.safetensors.index.json"));
  EXPECT_EQ(resolve_checkpoint(folder.path()), path);
  for (const MeshShape& shape : all_meshes(world.size())) {
    Trained second(shape);
    second.load(path);
    EXPECT_EQ(differences(second), 0) << shape.text();
  }
}

TEST(Checkpoint, KeepsNoMomentsOfWhatIsFrozenAndResumesOnlyWithTheSame) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const std::set<std::string> frozen = {"model.norm.weight", "model.layers.0.mlp.experts.down_proj"};
  Trained first(any_mesh(), frozen);
  fill_by_name(first);
  const fs::path path = first.save(folder.path(), state_at(1));
  const SafetensorsFile moments(path / "optimizer.safetensors");
  EXPECT_FALSE(moments.has("exp_avg.model.norm.weight"));
  EXPECT_TRUE(moments.has("exp_avg_sq.model.layers.0.mlp.experts.gate_up_proj"));
  Trained second(any_mesh(), frozen);
  EXPECT_EQ(second.load(path).frozen, std::vector<std::string>(frozen.begin(), frozen.end()));
  EXPECT_EQ(differences(second), 0);
  Trained other(any_mesh(), {"model.norm.weight", "lm_head.weight"});
  const std::string text = failure_of([&] { other.load(path); });
  EXPECT_NE(text.find("only then model.layers.0.mlp.experts.down_proj; only now lm_head.weight; resume"),
            std::string::npos)
      << text;
}

TEST(ExportModel, LeavesAFolderOfConfigAndWeightsOrNothing) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const fs::path path = folder.path() / std::string(name_of(type));
    export_model(path, run.store, run.mesh, run.config, {.shard_bytes = kShardBytes, .dtype = type});
    EXPECT_EQ(names_in(path),
              (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors"}));
    const Document config = Document::read(path / "config.json");
    EXPECT_EQ(config.text("dtype"), type == DType::kF32 ? "float32" : "bfloat16");
    EXPECT_EQ(config.texts("architectures").size(), 1u);
    Trained again(all_meshes(world.size()).front());
    load_model(path, again.store, again.mesh, ModelConfig::read(path));
    const float first = again.store.parameters()[0].value(0, 0);
    EXPECT_NEAR(first, expected_value("model.embed_tokens.weight", 0), type == DType::kF32 ? 0 : 0.02);
    const std::string text = failure_of([&] { export_model(path, run.store, run.mesh, run.config, {}); });
    EXPECT_NE(text.find("not an empty folder"), std::string::npos) << text;
  }
  world.barrier();
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"BF16", "F32"}));
}

TEST(ExportModel, IsRefusedOnAllRanksWhereAnotherWritesAndLeavesItAlone) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const fs::path path = folder.path() / "out";
  Trained run(any_mesh());
  std::optional<NewFolder> others;
  if (world.rank() == 0) others.emplace(path);
  const std::string text = failure_of([&] { export_model(path, run.store, run.mesh, run.config, {}); });
  EXPECT_NE(text.find("is being written by another process"), std::string::npos) << text;
  world.barrier();
  EXPECT_TRUE(fs::exists(partial_folder(path)));
  world.barrier();  // it goes with rank 0's
}

TEST(Checkpoint, TakesAModelsTokenizerAndTemplateAlongUnchanged) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const fs::path words = folder.path() / "words";
  const std::string tokenizer(std::size_t{kPieceBytes} + 7, 'x');  // more than one piece of a manifest
  if (world.rank() == 0) {
    fs::create_directories(words / "additional_chat_templates");
    replace_file(words / "tokenizer.json", tokenizer);
    replace_file(words / "chat_template.jinja", "{{ messages }}\n");
    replace_file(words / "additional_chat_templates" / "tool_use.jinja", "tools");
    replace_file(words / "pytorch_model.bin", "not a word");
  }
  world.barrier();
  Trained run(any_mesh());
  fill_by_name(run);
  const CheckpointRun to{
      .folder = folder.path(), .shard_bytes = kShardBytes, .words = read_word_files(words)};
  const fs::path saved = save_checkpoint(to, run.store, run.optimizer, run.mesh, run.config, state_at(1));
  export_model(folder.path() / "out", run.store, run.mesh, run.config, {}, read_word_files(saved));
  for (const fs::path& path : {saved, folder.path() / "out"}) {
    EXPECT_EQ(read_text_file(path / "tokenizer.json"), tokenizer);
    EXPECT_EQ(read_text_file(path / "chat_template.jinja"), "{{ messages }}\n");
    EXPECT_EQ(read_text_file(path / "additional_chat_templates" / "tool_use.jinja"), "tools");
    EXPECT_FALSE(fs::exists(path / "pytorch_model.bin"));
    EXPECT_TRUE(Manifest::read(path).files.contains("tokenizer.json"));
    EXPECT_EQ(whole_checkpoint(path, world).folder, path);
  }
}

TEST(Checkpoint, KeepsChecksumsOfWhatTheRanksHeld) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  const fs::path path = run.save(folder.path(), state_at(1));
  const TrainerState state = TrainerState::from(Document::read(path / "trainer_state.json"));
  const SafetensorsFile weights(path / "model.safetensors");
  EXPECT_EQ(state.weight_checksums.size(), weights.tensors().size());
  for (const auto& [name, hex] : state.weight_checksums)
    EXPECT_EQ(hex, hex_text(checksum(weights.raw(name)))) << name;
}

TEST(Checkpoint, RefusesAStateWithCountsThatNoRunHas) {
  const auto refusal = [](const std::string& key, Index value, bool of_mesh) {
    Document document = state_at(12).to_document();
    Document mesh = document.object("mesh");
    (of_mesh ? mesh : document).set(key, value);
    document.set("mesh", mesh);
    try {
      TrainerState::from(document);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("global_step", 12, false), "");
  EXPECT_NE(refusal("global_step", -1, false).find("global_step = -1"), std::string::npos);
  EXPECT_NE(refusal("dp", std::numeric_limits<Index>::max(), true).find("dp = 9223372036854775807"),
            std::string::npos);
  EXPECT_NE(refusal("ep", Index{1} << 32, true).find("more than MPI can have"), std::string::npos);
}

TEST(Checkpoint, KeepsTheTrainerState) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  const TrainerState state = run.load(run.save(folder.path(), state_at(12)));
  EXPECT_EQ(state.step, 12);
  EXPECT_EQ(state.seed, 0xFFFFFFFFFFFFFFF0);
  EXPECT_EQ(state.data_file, "corpus.txt");
  EXPECT_EQ(state.data_bytes, 4321);
  EXPECT_TRUE(state.gmm_applied);
  EXPECT_EQ(state.gmm_reason, "a \"reason\"");
  EXPECT_EQ(state.settings.number("lr"), 0.1);
}

TEST(Checkpoint, FindsDamageInWeightsAndMoments) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  const fs::path path = run.save(folder.path(), state_at(1));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const auto flip = [&] {
      std::string bytes = testing::read_bytes(path / file);
      bytes[bytes.size() - 100] ^= 1;
      testing::write_bytes(path / file, bytes);
    };
    alone(world, flip);
    EXPECT_NE(failure_of([&] { run.load(path); }).find("is damaged"), std::string::npos) << file;
    alone(world, flip);
    EXPECT_EQ(failure_of([&] { run.load(path); }), "");
  }
}

TEST(Checkpoint, RefusesWhatIsMissingOrCut) {
  const Communicator world = Communicator::world();
  const char* files[] = {"model.safetensors", "optimizer.safetensors", "trainer_state.json"};
  for (const char* file : files) {
    const SharedFolder folder(world);
    Trained run(any_mesh());
    const fs::path path = run.save(folder.path(), state_at(1));
    alone(world, [&] { fs::resize_file(path / file, fs::file_size(path / file) / 2); });
    EXPECT_NE(failure_of([&] { run.load(path); }).find(file), std::string::npos) << file;
    alone(world, [&] { fs::remove(path / file); });
    EXPECT_NE(failure_of([&] { run.load(path); }), "") << file;
  }
}

TEST(Checkpoint, ReplacesOneOfTheSameStep) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  run.save(folder.path(), state_at(3));
  fill_by_name(run);
  const fs::path path = run.save(folder.path(), state_at(3));
  world.barrier();
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-3"}));
  Trained again(any_mesh());
  again.load(path);
  EXPECT_EQ(differences(again), 0);
}

TEST(Checkpoint, IgnoresAndCleansWhatAKilledSaveLeft) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  const fs::path path = run.save(folder.path(), state_at(1));
  alone(world, [&] {
    fs::copy(path, folder.path() / ".checkpoint-2.partial");
    fs::create_directory(folder.path() / "checkpoint-9");  // without its files
  });
  EXPECT_EQ(resolve_checkpoint(folder.path()), path);
  world.barrier();
  run.save(folder.path(), state_at(10));
  world.barrier();
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"checkpoint-1", "checkpoint-10", "checkpoint-9"}));
  EXPECT_EQ(resolve_checkpoint(folder.path()), folder.path() / "checkpoint-10");
}

TEST(Checkpoint, ASaveThatFailsOnOneRankLeavesThePreviousOneWhole) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  const fs::path path = run.save(folder.path(), state_at(1));
  for (const int failing : {0, world.size() - 1}) {
    std::optional<FileSizeLimit> limit;
    if (world.rank() == failing) limit.emplace(1 << 16);
    const std::string text = failure_of([&] { run.save(folder.path(), state_at(2)); });
    limit.reset();
    EXPECT_NE(text.find("File too large"), std::string::npos) << text;
    world.barrier();
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"checkpoint-1"}));
    Trained again(any_mesh());
    again.load(path);
    EXPECT_EQ(differences(again), 0);
  }
}

TEST(Checkpoint, SaysWhereItCannotBeMade) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  alone(world, [&] { testing::write_bytes(folder.path() / "run", "a file"); });
  Trained run(any_mesh());
  const std::string text = failure_of([&] { run.save(folder.path() / "run", state_at(2)); });
  EXPECT_NE(text.find((folder.path() / "run").string()), std::string::npos) << text;
}

TEST(LoadModel, ReadsCheckpointsAndPlainFolders) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  Trained run(any_mesh());
  fill_by_name(run);
  const fs::path path = run.save(folder.path(), state_at(1));
  EXPECT_TRUE(is_checkpoint(path));
  for (const bool plain : {false, true}) {
    if (plain) alone(world, [&] { fs::remove(path / "trainer_state.json"); });
    Trained again(all_meshes(world.size()).front());
    load_model(path, again.store, again.mesh, ModelConfig::read(path));
    for (const Parameter& parameter : again.store.parameters())
      EXPECT_EQ(parameter.value(0, 0), expected_value(parameter.spec.slices.front().name, 0));
  }
  EXPECT_FALSE(is_checkpoint(path));
  EXPECT_EQ(resolve_checkpoint(path), path);
}

}  // namespace
}  // namespace moeloom
