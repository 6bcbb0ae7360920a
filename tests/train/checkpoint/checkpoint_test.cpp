#include "moeloom/train/checkpoint/checkpoint.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/model/freeze.hpp"

#include <csignal>
#include <functional>
#include <sys/resource.h>

#include "support/shared_folder.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::all_meshes;
using testing::names_in;
using testing::SharedFolder;
using testing::small_config;

/// One rank's part of a run at a mesh.
struct Trained {
  ModelConfig config = small_config();
  Mesh mesh;
  ParameterStore store;
  ShardedOptimizer optimizer;

  explicit Trained(const MeshShape& shape, const std::set<std::string>& frozen = {})
      : mesh(Communicator::world(), shape),
        store(with_frozen(parameter_specs(config, testing::experts_here(config, mesh)), frozen)),
        optimizer(store, mesh, {}) {}

  fs::path save(const fs::path& folder, TrainerState state, Index shard_bytes = kShardBytes) {
    return save_checkpoint({folder, shard_bytes}, store, optimizer, mesh, config, std::move(state));
  }
  TrainerState load(const fs::path& checkpoint) {
    return load_checkpoint(checkpoint, store, optimizer, mesh, config);
  }
};

/// f(what, HF name, element) of every value and owned moment: something that every mesh agrees on.
using Visit = std::function<void(const std::string& name, Index element, float& value)>;

void visit_moments(Trained& run, const std::string& what, std::span<float> moments, const Visit& visit) {
  for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
    const Parameter& parameter = run.store.parameters()[static_cast<std::size_t>(block.parameter)];
    for (Index i = 0; i < block.count; ++i) {
      const Index element = block.begin - parameter.offset + i;
      const Index row = element / parameter.spec.cols;
      for (const HfSlice& slice : parameter.spec.slices)
        if (row >= slice.row_begin && row < slice.row_begin + slice.rows)
          visit(what + slice.name, element - slice.row_begin * parameter.spec.cols,
                moments[static_cast<std::size_t>(block.state + i)]);
    }
  }
}

void visit_everything(Trained& run, const Visit& visit) {
  for (const Parameter& parameter : run.store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      const auto values = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
      for (std::size_t i = 0; i < values.size(); ++i) visit(slice.name, static_cast<Index>(i), values[i]);
    }
  visit_moments(run, "exp_avg.", run.optimizer.first_moments(), visit);
  visit_moments(run, "exp_avg_sq.", run.optimizer.second_moments(), visit);
}

float expected_value(const std::string& name, Index element) {
  return static_cast<float>(CounterRandom(3, stream_of(name)).normal(static_cast<std::uint64_t>(element)));
}

Index expected_time(Index parameter, Index global_group) {
  return 1 + 10 * parameter + global_group;
}

void fill_by_name(Trained& run) {
  visit_everything(run, [](const std::string& name, Index i, float& v) { v = expected_value(name, i); });
  for (std::size_t p = 0; p < run.store.parameters().size(); ++p)
    for (std::size_t g = 0; g < run.optimizer.times()[p].size(); ++g)
      run.optimizer.times()[p][g] = expected_time(
          static_cast<Index>(p), run.store.parameters()[p].spec.first_group + static_cast<Index>(g));
}

Index differences(Trained& run) {
  Index count = 0;
  visit_everything(run, [&](const std::string& name, Index i, float& v) {
    count += v == expected_value(name, i) ? 0 : 1;
  });
  for (std::size_t p = 0; p < run.store.parameters().size(); ++p) {
    const ParameterSpec& spec = run.store.parameters()[p].spec;
    for (Index g = 0; g < spec.groups; ++g)
      count += run.optimizer.times()[p][static_cast<std::size_t>(g)] ==
                       expected_time(static_cast<Index>(p), spec.first_group + g)
                   ? 0
                   : 1;
  }
  return count;
}

TrainerState state_at(Index step) {
  TrainerState state;
  state.step = step;
  state.seed = 0xFFFFFFFFFFFFFFF0;
  state.data_file = "corpus.txt";
  state.data_bytes = 4321;
  state.global_batch = 16;
  state.sequence_length = 128;
  state.gmm_applied = true;
  state.gmm_reason = "a \"reason\"";
  state.settings.set("lr", 0.1);
  return state;
}

MeshShape any_mesh() {
  return all_meshes(Communicator::world().size()).back();
}

/// On rank 0, seen by all ranks afterwards.
void alone(const Communicator& world, const std::function<void()>& action) {
  world.barrier();
  if (world.rank() == 0) action();
  world.barrier();
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const AgreedError& error) {
    return error.what();
  }
  return "";
}

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
    EXPECT_EQ(names_in(path), (std::vector<std::string>{"config.json", "model.safetensors"}));
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

/// While it lives, writing beyond `bytes` of a file fails, in the same calls as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

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
