// An adapter's whole way, as a person goes it: trained beside a model, resumed on another mesh, asked,
// merged.
#include "io/disk_memory.hpp"
#include "io/safetensors_shards.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/safetensors.hpp"

#include <fstream>
#include <map>
#include <sstream>

#include "program/command_line.hpp"
#include "record/exit_code.hpp"
#include "record/metrics.hpp"
#include "support/files.hpp"
#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::Outcome;

class AdapterCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream first(folder_ / "first.txt"), second(folder_ / "second.txt");
    for (int i = 0; i < 300; ++i) {
      first << "And the weaver drew thread " << i * i % 89 << ".\n";
      second << "But the weaver cut rope " << i * i % 83 << "!\n";
    }
    base_ = path("base");
    const Outcome made = shell(
        "train --layers 2 --hidden 16 --inter 8 --heads 2 --kv-heads 1 --head-dim 8 "
        "--experts 4 --top-k 2 --steps 30 --data " +
        path("first.txt") + common("run") + " --export " + base_);
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome shell(const std::string& words, int ranks = 1) const {
    return testing::moeloom_command(words, ranks, path("cache"));
  }
  std::string common(const std::string& run) const {
    return " --seq-len 16 --global-batch 4 --eval-sequences 4 --sample-chars 0 --run " + path(run);
  }
  std::string tune(const std::string& run, const std::string& flags) const {
    return "train --model " + base_ + " --lr 0.02 --data " + path("second.txt") + common(run) + " " + flags;
  }
  /// "nats/token" of eval's last line.
  double loss(const std::string& words, int ranks = 1) const {
    const Outcome outcome = shell("eval --data " + path("second.txt") + " --seq-len 16 " + words, ranks);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::size_t line = outcome.output.rfind("second");
    std::istringstream words_of(outcome.output.substr(line == std::string::npos ? 0 : line));
    std::string name;
    double tokens = 0, nats = 0;
    words_of >> name >> tokens >> nats;
    return nats;
  }
  void expect_says(const Outcome& outcome, int exit_code, const std::string& part) const {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.output;
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
  }
  static std::string bytes(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// Trained, resumed elsewhere, asked and merged.
  void expect_whole_life(const std::string& more = "") const {
    const std::string flags = "--lora r=4,alpha=8" + more + " --steps 20 --save-every 10 --keep 0 ";
    const Outcome whole = shell(tune("whole", flags + "--ep 2 --export " + path("adapter")), 2);
    expect_says(whole, 0, "trained parameters in ");
    EXPECT_FALSE(fs::exists(path("whole/checkpoint-20/model.safetensors")))
        << "the model itself is kept once";

    fs::create_directory(path("half"));
    fs::copy(path("whole"), path("half"), fs::copy_options::recursive);
    fs::remove_all(path("half/checkpoint-20"));
    fs::remove(path("half/report.html"));
    const Outcome resumed = shell("train --resume " + path("half") + " --ep 1", 2);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    const std::string file = "checkpoint-20/" + std::string(kAdapterFile);
    EXPECT_EQ(bytes(path("whole/" + file)), bytes(path("half/" + file)));
    EXPECT_EQ(bytes(path("whole/" + file)), bytes(path("adapter/") + kAdapterFile));

    expect_says(shell("inspect " + path("whole"), 0), 0, ", all with a place in the model\n");
    expect_says(shell("inspect --verify " + path("whole"), 0), 0, "whole      " + std::string(kAdapterFile));

    const double before = loss("--model " + base_),
                 with = loss("--model " + base_ + " --adapter " + path("adapter"));
    EXPECT_LT(with, before - 0.1);
    expect_says(shell("convert " + base_ + " " + path("merged") + " --merge " + path("whole")), 0,
                "merged: ");
    EXPECT_NEAR(loss("--model " + path("merged")), with, 1e-4) << "as many digits as eval prints";
    EXPECT_NEAR(loss("--ep 2 --model " + path("whole"), 2), with, 1e-4);
    const Outcome asked = shell("generate --tokens 12 --temperature 0 --model " + path("whole"));
    const Outcome merged = shell("generate --tokens 12 --temperature 0 --model " + path("merged"));
    EXPECT_EQ(asked.exit_code, 0) << asked.output;
    EXPECT_EQ(asked.output, merged.output);
  }

  testing::TemporaryFolder folder_;
  std::string base_;
};

TEST_F(AdapterCommand, IsTrainedResumedElsewhereAskedAndMerged) {
  expect_whole_life();
}

TEST_F(AdapterCommand, OfExpertsInStacksToo) {
  expect_says(shell("convert " + base_ + " " + path("stacks") + " --layout stacked", 0), 0, "stacks");
  base_ = path("stacks");
  expect_whole_life();
  const std::string config = bytes(path("adapter/") + kAdapterConfigFile);
  EXPECT_NE(config.find("\"model.layers.1.mlp.experts.gate_up_proj\""), std::string::npos) << config;
}

/// Whole and resumed have the same masks.
TEST_F(AdapterCommand, WithDropoutToo) {
  expect_whole_life(",dropout=0.1");
  const std::string config = bytes(path("adapter/") + kAdapterConfigFile);
  EXPECT_EQ(Document::read(path("adapter/") + kAdapterConfigFile).number("lora_dropout"), 0.1) << config;
  expect_says(shell(tune("a", "--lora r=2,dropout=1")), 1, "dropout must lie in [0, 1)");
  expect_says(shell("train --resume " + path("half") + " --steps 24 --lora r=4,alpha=8,dropout=0.2"), 1,
              "trains an adapter of r = 4, scale 2 and dropout 0.1");
}

/// PEFT's file says nothing of the dropout of stacks; the checkpoint does, also without the run's options.
TEST_F(AdapterCommand, OfStacksResumesWithItsDropout) {
  ASSERT_EQ(shell("convert " + base_ + " " + path("stacks") + " --layout stacked", 0).exit_code, 0);
  base_ = path("stacks");
  const std::string flags = "--lora r=2,dropout=0.2,targets=experts --save-every 3 --keep 0 ";
  ASSERT_EQ(shell(tune("whole", flags + "--steps 6")).exit_code, 0);
  ASSERT_EQ(shell(tune("plain", "--lora r=2,targets=experts --steps 6")).exit_code, 0);
  const std::string file = "/checkpoint-6/" + std::string(kAdapterFile);
  EXPECT_NE(bytes(path("whole" + file)), bytes(path("plain" + file))) << "something is dropped";
  const Document config = Document::read(path("whole/checkpoint-6/") + kAdapterConfigFile);
  EXPECT_EQ(config.number("lora_dropout"), 0);
  fs::create_directory(path("moved"));
  fs::copy(path("whole/checkpoint-3"), path("moved/checkpoint-3"), fs::copy_options::recursive);
  const Outcome resumed = shell("train --resume " + path("moved/checkpoint-3") +
                                " --steps 6 --lr 0.02 --data " + path("second.txt") + common("resumed"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(bytes(path("whole" + file)), bytes(path("resumed" + file)));
  const std::string state = path("moved/checkpoint-3/trainer_state.json");
  Document recorded = Document::read(state), settings = recorded.object("settings");
  settings.set("lora_dropout", 1.5);
  recorded.set("settings", settings);
  recorded.write(state);
  fs::remove(path("moved/checkpoint-3/manifest.json"));
  expect_says(shell("train --resume " + path("moved/checkpoint-3") + " --steps 6 --data " +
                    path("second.txt") + common("broken")),
              1, "lora_dropout in " + state + " = 1.5 must lie in [0, 1)");
}

TEST_F(AdapterCommand, HasTheSameBitsInChunksWithReplicasAndWithExactSums) {
  const std::string flags = "--lora r=2,targets=attention,experts,router --steps 4 ";
  const auto adapter_of = [&](const std::string& run, const std::string& more, int ranks) {
    const Outcome outcome = shell(tune(run, flags + more), ranks);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return bytes(path(run + "/checkpoint-4/") + kAdapterFile);
  };
  const std::string plain = adapter_of("plain", "--ep 2", 2);
  EXPECT_EQ(adapter_of("chunks", "--ep 2 --dispatcher alltoall --overlap 2", 2), plain);
  EXPECT_EQ(adapter_of("replicas", "--ep 2 --dispatcher alltoall --overlap 2 --rebalance", 2), plain);
  EXPECT_EQ(adapter_of("shared", "--ep 2 --dispatcher shared --rebalance", 2), plain);
  const std::string alone = adapter_of("alone", "--exact 1", 1);
  EXPECT_EQ(adapter_of("both", "--exact 1 --ep 2", 2), alone);
  EXPECT_EQ(adapter_of("all", "--exact 1 --ep 2 --dispatcher alltoall --rebalance", 2), alone);
}

TEST_F(AdapterCommand, DropsTheSameInputsHoweverItRuns) {
  const auto adapter_of = [&](const std::string& run, const std::string& more, int ranks) {
    const std::string flags = "--lora r=2,dropout=0.3,targets=attention,experts,router --steps 4 ";
    const Outcome outcome = shell(tune(run, flags + more), ranks);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return bytes(path(run + "/checkpoint-4/") + kAdapterFile);
  };
  const std::string plain = adapter_of("plain", "--ep 2", 2);
  EXPECT_EQ(adapter_of("chunks", "--ep 2 --dispatcher alltoall --overlap 2", 2), plain);
  EXPECT_EQ(adapter_of("apart", "--ep 1", 2), plain);
  EXPECT_EQ(adapter_of("checked", "--ep 2 --recompute block --check-steps 2 --check-replicas 2", 2), plain);
  const std::string exact = "--exact 1 --aux-loss-coef 0 ";  // which is of a micro-batch
  EXPECT_EQ(adapter_of("alone", exact, 1), adapter_of("both", exact + "--ep 2 --accumulate 2", 2));
  EXPECT_EQ(adapter_of("replicas", "--ep 2 --rebalance", 2), plain);
}

/// Half the memory, and every bit.
TEST_F(AdapterCommand, HasTheSameBitsBesideAModelInBf16) {
  ASSERT_EQ(shell("convert " + base_ + " " + path("half") + " --export-dtype bf16", 0).exit_code, 0);
  ASSERT_EQ(shell("convert " + path("half") + " " + path("wide") + " --export-dtype fp32", 0).exit_code, 0);
  std::map<std::string, std::string> adapters;
  std::map<std::string, std::string> memory;
  for (const std::string model : {"half", "wide"}) {
    const Outcome outcome =
        shell("train --model " + path(model) + " --lr 0.02 --data " + path("second.txt") +
                  common("of-" + model) + " --ep 2 --steps 4 --check-replicas 2 --check-steps 3 " +
                  "--lora r=2,targets=attention,experts,router",
              2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    adapters[model] = bytes(path("of-" + model + "/checkpoint-4/") + kAdapterFile);
    const std::size_t said = outcome.output.find("predicted for a rank: ");
    memory[model] = outcome.output.substr(said, outcome.output.find(" weights", said) - said);
  }
  EXPECT_EQ(adapters["half"], adapters["wide"]);
  const auto answer = [&](const std::string& model) {
    const Outcome outcome = shell("generate --tokens 20 --temperature 0 --ep 2 --model " + path(model), 2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  };
  EXPECT_EQ(answer("half"), answer("wide")) << "asked, it keeps its bf16 too";
  EXPECT_EQ(loss("--model " + path("half")), loss("--model " + path("wide")));
  EXPECT_NE(memory["half"], memory["wide"]) << "fewer bytes of weights are predicted";
  expect_says(shell("train --resume " + path("of-half") + " --steps 6 --ep 1"), 0, "resumed=");
  expect_says(shell("train --model " + path("half") + " --data " + path("second.txt") + common("balanced") +
                        " --ep 2 --steps 2 --lora r=2,targets=attention --rebalance",
                    2),
              0, "rebalance=yes");
  fs::remove(path("half/manifest.json"));
  Document config = Document::read(path("half/config.json"));
  config.set("attention_bias", true);  // four tensors more than the file has
  config.write(path("half/config.json"));
  expect_says(shell("train --model " + path("half") + " --data " + path("second.txt") + common("biased") +
                    " --steps 2 --lora r=2 --allow-missing '*.bias'"),
              1, "an adapter does not hold what starts anew");
}

/// A copy of a model, its tensors as type(name) says.
template <typename TypeOf>
void write_as(const fs::path& from, const fs::path& to, TypeOf type) {
  const SafetensorsFolder source(from);
  fs::create_directory(to);
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.path().extension() != ".safetensors" && entry.path().filename() != "manifest.json")
      fs::copy_file(entry.path(), to / entry.path().filename());
  std::vector<TensorSpec> specs;
  for (const std::string& name : source.names()) specs.push_back({name, type(name), source.info(name).shape});
  const ShardPlan plan = plan_shards(specs);
  create_shards(to, plan);
  ShardWriter writer(to, plan);
  for (const std::string& name : source.names()) {
    std::vector<float> values(static_cast<std::size_t>(source.info(name).elements()));
    source.file_of(name).read(name, 0, values);
    writer.write(name, 0, values);
  }
  writer.close();
}

/// F16 has more digits than bf16: the same bytes, and every bit of it.
TEST_F(AdapterCommand, HasTheSameBitsBesideAModelInF16) {
  write_as(base_, path("f16"), [](const std::string&) { return DType::kF16; });
  write_as(path("f16"), path("wide"), [](const std::string&) { return DType::kF32; });
  write_as(path("f16"), path("bf16"), [](const std::string&) { return DType::kBF16; });
  write_as(path("f16"), path("mixed"), [](const std::string& name) {
    return name.find("q_proj") != std::string::npos ? DType::kBF16 : DType::kF16;
  });
  fs::create_directory(path("disk"));
  std::map<std::string, std::string> adapters, memory;
  const auto run = [&](const std::string& model, const std::string& name, const std::string& more = "") {
    const Outcome outcome = shell(
        "train --model " + path(model) + " --lr 0.02 --data " + path("second.txt") + common(name) +
            " --ep 2 --steps 10 --check-replicas 2 --lora r=4,alpha=8,targets=attention,experts,router" +
            more,
        2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    adapters[name] = bytes(path(name + "/checkpoint-10/") + kAdapterFile);
    const std::size_t said = outcome.output.find("predicted for a rank: ");
    memory[name] = outcome.output.substr(said, outcome.output.find(" weights", said) - said);
  };
  run("f16", "of-f16");
  run("wide", "of-wide");
  run("bf16", "of-bf16");
  run("mixed", "of-mixed");
  run("f16", "on-disk", " --offload " + path("disk"));
  run("f16", "replicas", " --rebalance");
  EXPECT_EQ(adapters["of-f16"], adapters["of-wide"]);
  EXPECT_EQ(adapters["of-f16"], adapters["on-disk"]);
  EXPECT_EQ(adapters["of-f16"], adapters["replicas"]);
  EXPECT_NE(adapters["of-f16"], adapters["of-bf16"]) << "the digits that bf16 lacks were there";
  EXPECT_EQ(memory["of-f16"], memory["of-bf16"]) << "two bytes a number";
  EXPECT_NE(memory["of-f16"], memory["of-wide"]);
  EXPECT_EQ(memory["of-mixed"], memory["of-wide"]) << "of two kinds are floats";

  const auto answer = [&](const std::string& model) {
    const Outcome outcome = shell("generate --tokens 20 --temperature 0 --ep 2 --model " + path(model), 2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  };
  EXPECT_EQ(answer("f16"), answer("wide"));
  const double before = loss("--model " + path("f16"));
  EXPECT_EQ(before, loss("--model " + path("wide")));
  const double with = loss("--model " + path("of-f16"));
  EXPECT_LT(with, before - 0.1) << "it trains";
  expect_says(shell("convert " + path("f16") + " " + path("merged") + " --export-dtype fp32 --merge " +
                    path("of-f16")),
              0, "merged: ");
  EXPECT_NEAR(loss("--model " + path("merged")), with, 1e-4) << "as many digits as eval prints";
}

TEST_F(AdapterCommand, HasTheSameBitsBesideExpertsOnADisk) {
  if (lies_in_memory(folder_.path())) GTEST_SKIP() << folder_.path() << " lies in memory";
  ASSERT_EQ(shell("convert " + base_ + " " + path("half") + " --export-dtype bf16", 0).exit_code, 0);
  fs::create_directory(path("disk"));
  const auto adapter_of = [&](const std::string& run, const std::string& flags) {
    const Outcome outcome =
        shell("train --model " + path("half") + " --lr 0.02 --data " + path("second.txt") + common(run) +
                  " --lora r=4,alpha=8 --steps 10 --ep 2 " + flags,
              2);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return bytes(path(run) + "/checkpoint-10/" + kAdapterFile);
  };
  const std::string in_memory = adapter_of("in_memory", "");
  EXPECT_EQ(adapter_of("on_disk", "--offload " + path("disk")), in_memory);
  EXPECT_TRUE(fs::is_empty(path("disk")));
  for (const std::string dispatcher : {"alltoall", "shared", "hierarchical"})
    EXPECT_EQ(adapter_of(dispatcher, "--rebalance --dispatcher " + dispatcher + " --offload " + path("disk")),
              in_memory)
        << "no weight of a disk lies in a node's memory";
  // Every reader of the weights that is no step.
  EXPECT_EQ(adapter_of("looked_at",
                       "--eval-every 2 --check-replicas 2 --check-steps 3 --sample-chars 4 "
                       "--offload " +
                           path("disk")),
            in_memory);
  expect_says(shell(tune("none", "--steps 1 --offload " + path("disk"))), 1, "has nothing to keep there");
  expect_says(shell("train --model " + path("half") + " --data " + path("second.txt") + common("nowhere") +
                    " --lora r=4,alpha=8 --steps 1 --offload " + path("no-such-folder")),
              1, "no-such-folder");
  if (lies_in_memory("/dev/shm"))
    expect_says(shell("train --model " + path("half") + " --data " + path("second.txt") + common("shm") +
                          " --lora r=4,alpha=8 --steps 1 --ep 2 --offload /dev/shm",
                      2),
                1, "--offload /dev/shm lies in memory; name a folder on a disk");
  const std::string plan = " --ranks 2 --seq-len 16 --tokens-per-rank 32 --offload " + path("disk");
  expect_says(shell("plan --lora r=4 --model " + path("half") + plan, 0), 0, " --offload " + path("disk"));
  expect_says(shell("plan --lora r=4 --model " + base_ + plan, 0), 1, "has nothing to keep there");
}

/// Also while it is loaded, looked at and asked: of eight layers, two.
TEST_F(AdapterCommand, HoldsTwoLayersOfExpertsThatLieOnADisk) {
  if (lies_in_memory(folder_.path())) GTEST_SKIP() << folder_.path() << " lies in memory";
  fs::create_directory(path("config"));
  fs::create_directory(path("disk"));
  Document config = Document::read(base_ + "/config.json");
  config.set("num_hidden_layers", Index{8});
  config.set("hidden_size", Index{256});
  config.set("moe_intermediate_size", Index{512});
  config.write(path("config/config.json"));
  ASSERT_EQ(shell("convert " + path("config") + " " + path("large") + " --export-dtype bf16", 0).exit_code,
            0);
  const double layer = 2.0 * 4 * 3 * 256 * 512;
  const auto memory_of = [&](const std::string& run, const std::string& flags) {
    const Outcome outcome =
        shell("train --model " + path("large") + " --data " + path("second.txt") + common(run) +
              " --sample-chars 4 --check-replicas 1 --lora r=2,targets=attention --steps 3 " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto bytes_after = [&](const std::string& word) {
      const std::size_t at = outcome.output.rfind(word);
      std::istringstream text(outcome.output.substr(at == std::string::npos ? 0 : at + word.size()));
      double number = 0;
      text >> number;
      return number * (1 << 20);
    };
    EXPECT_NE(outcome.output.find("memory_peak=\""), std::string::npos) << outcome.output;
    return std::pair(bytes_after("memory_peak=\""), bytes_after("predicted=\""));
  };
  const auto [in_memory, all] = memory_of("in_memory", "");
  const auto [on_disk, two] = memory_of("on_disk", "--offload " + path("disk"));
  EXPECT_NEAR(all - two, 6 * layer, 0.5 * layer) << "beside what the program itself holds";
  EXPECT_GT(in_memory - on_disk, 5 * layer) << in_memory << " and " << on_disk;
  const double mapped =
      static_cast<double>(fs::file_size(path("large/model.safetensors")));  // while it loads
  if (!testing::kSanitized) {  // whose memory would be counted too
    EXPECT_LT(on_disk, 1.1 * two + mapped);
  }
  const auto after_steps = [&](const std::string& run) {
    return static_cast<double>(read_metrics(path(run + "/metrics.jsonl")).back().rss_bytes);
  };
  EXPECT_GT(after_steps("in_memory") - after_steps("on_disk"), 5 * layer) << "each step hashed all weights";
}

/// Also of a weight in bf16.
TEST_F(AdapterCommand, NamesTheWeightThatIsNoNumber) {
  ASSERT_EQ(shell("convert " + base_ + " " + path("half") + " --export-dtype bf16", 0).exit_code, 0);
  const std::string tensor = "model.layers.1.mlp.experts.2.down_proj.weight";
  const Index at = SafetensorsFolder(path("half")).info(tensor).begin;
  {
    std::fstream file(path("half/model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.write("\xff\x7f", 2);
  }
  fs::remove(path("half/manifest.json"));
  const std::string named = "model.layers.1.mlp.experts.down_proj, expert 2 on rank 0";
  expect_says(shell("eval --model " + path("half") + " --data " + path("first.txt")), kDataExitCode, named);
  expect_says(shell("generate --tokens 20 --model " + path("half")), kDataExitCode, "its weights are broken");
  expect_says(shell("train --model " + path("half") + " --lora r=2 --steps 2 --data " + path("first.txt") +
                    common("tuned")),
              1, named);
}

TEST_F(AdapterCommand, ANewModelsWeightsAreThoseThatTrainingBeginsWith) {
  fs::create_directory(path("config"));
  fs::copy_file(base_ + "/config.json", path("config/config.json"));
  expect_says(shell("convert " + path("config") + " " + path("new") + " --export-dtype fp32 --seed 5", 0), 0,
              " initial parameters of seed 5");
  const std::string losses = " --steps 2 --data " + path("first.txt");
  const auto first_loss = [&](const std::string& model, const std::string& run) {
    const Outcome outcome = shell("train --seed 5 --model " + model + losses + common(run));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::size_t at = outcome.output.find("step=0 loss=");
    return outcome.output.substr(at, outcome.output.find(" grad_norm", at) - at);
  };
  EXPECT_EQ(first_loss(path("new"), "one"), first_loss(path("config"), "two"));
  expect_says(shell("convert " + base_ + " " + path("x") + " --layout stacked --seed 5", 0), 1,
              "--seed belongs to --experts N, or to a SOURCE with config.json only");
  expect_says(shell("convert " + path("config") + " " + path("x") + " --layout stacked --seed 5", 0), 1,
              "holds config.json only: its initial weights are written as they are; convert them then");
}

TEST_F(AdapterCommand, SaysThatTheMergedModelDoesNotFit) {
  ASSERT_EQ(shell(tune("tuned", "--lora r=2 --steps 2")).exit_code, 0);
  fs::remove(base_ + "/manifest.json");
  Document config = Document::read(base_ + "/config.json");
  for (const char* width : {"hidden_size", "moe_intermediate_size"}) config.set(width, Index{1} << 20);
  config.write(base_ + "/config.json");
  const std::string eval = "eval --model " + base_ + " --data " + path("second.txt");
  const std::string fits = "the model does not fit into memory: its weights take ";
  const Outcome merged = shell(eval + " --ep 2 --adapter " + path("tuned"), 2);
  expect_says(merged, 1, fits);
  expect_says(merged, 1, "; choose a larger ep on more nodes, or merge the adapter first (convert --merge");
  const Outcome alone = shell(eval);
  expect_says(alone, 1, fits);
  EXPECT_EQ(alone.output.find("--merge"), std::string::npos) << alone.output;
}

TEST_F(AdapterCommand, SaysWhichExpertsHaveNoFactors) {
  ASSERT_EQ(shell(tune("tuned", "--lora r=2,targets=all --steps 2")).exit_code, 0);
  const std::string only = path("tuned/checkpoint-2/") + kAdapterFile;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<float>> values;
  {
    const SafetensorsFile file(only);
    for (const auto& [name, info] : file.tensors())
      if (name.find("experts.2.") != std::string::npos) {
        specs.push_back({name, DType::kF32, info.shape});
        values.push_back(file.floats(name));
      }
  }
  fs::create_directory(path("some"));
  write_safetensors(path("some/") + kAdapterFile, specs, {values.begin(), values.end()});
  fs::copy_file(path("tuned/checkpoint-2/") + kAdapterConfigFile, path("some/") + kAdapterConfigFile);
  const std::string left_out = "modules_without_factors=18";
  expect_says(shell("generate --tokens 4 --model " + base_ + " --adapter " + path("some")), 0, left_out);
  expect_says(shell("convert " + base_ + " " + path("merged") + " --merge " + path("some")), 0, left_out);
}

TEST_F(AdapterCommand, ThatIsDamagedIsRefusedByConvertAsByEval) {
  ASSERT_EQ(shell(tune("tuned", "--lora r=2,targets=attention --steps 2")).exit_code, 0);
  fs::create_directory(path("damaged"));
  fs::copy_file(path("tuned/checkpoint-2/") + kAdapterConfigFile, path("damaged/") + kAdapterConfigFile);
  const std::vector<float> values(4 * 16, 1.0f);
  const std::string tensor = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  write_safetensors(path("damaged/") + kAdapterFile, {{tensor, DType::kF32, {4, 16}}},
                    {std::span<const float>(values)});
  const std::string words = tensor + ": expected [2,16], found [4,16]";
  expect_says(shell("convert " + base_ + " " + path("out") + " --merge " + path("damaged")), kDataExitCode,
              words);
  expect_says(shell("generate --model " + base_ + " --adapter " + path("damaged")), kDataExitCode, words);
}

TEST_F(AdapterCommand, IsRefusedWhereItWouldBeLost) {
  expect_says(shell(tune("a", "--lora targets=shared")), 1,
              "--lora: targets shared mean nothing of this model");
  expect_says(shell(tune("a", "--lora r=2 --freeze '*norm*'")), 1, "--freeze cannot be had with --lora");
  expect_says(shell(tune("a", "--lora r=2 --router hash")), 1, "--router hash cannot be had with --lora");
  ASSERT_EQ(shell(tune("tuned", "--lora r=2 --steps 2")).exit_code, 0);
  expect_says(shell("train --resume " + path("tuned") + " --steps 4 --lora r=4"), 1,
              "the run that is resumed trains an adapter of r = 2");
  expect_says(shell("train --model " + path("tuned") + " --lora r=2 --steps 2 --data " + path("second.txt") +
                    common("b")),
              1, "is an adapter itself");
  ASSERT_EQ(shell(tune("tuned", "--lora r=2 --steps 3 --overwrite")).exit_code, 0);
  fs::rename(base_, path("elsewhere"));
  fs::copy(path("elsewhere"), base_, fs::copy_options::recursive);
  const Outcome same = shell("train --resume " + path("tuned") + " --steps 4");
  expect_says(same, 0, "resumed=");
  EXPECT_EQ(same.output.find("changed=\"weights"), std::string::npos) << "a copy is the same\n"
                                                                      << same.output;
  fs::remove_all(base_);
  ASSERT_EQ(shell("train --model " + path("elsewhere") + " --steps 1 --data " + path("second.txt") +
                  common("another") + " --export " + base_)
                .exit_code,
            0);
  expect_says(shell("train --resume " + path("tuned") + " --steps 5"), 0,
              "changed=\"weights under the adapter\"");
  fs::remove_all(base_);
  expect_says(shell("generate --model " + path("tuned")), kDataExitCode,
              "which is no folder with config.json");
  expect_says(shell("generate --tokens 4 --model " + path("elsewhere") + " --adapter " + path("tuned")), 0,
              "The ");
}

}  // namespace
}  // namespace moeloom
