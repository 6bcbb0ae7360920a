#include "watch/fault_injector.hpp"

#include "io/file_observer.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <chrono>
#include <cmath>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

Position in_phase(Index step, Phase phase) {
  Position position;
  position.activity = Activity::kTraining;
  position.step = step;
  position.phase = phase;
  return position;
}

ParameterSpec trained(const std::string& name, Index layer) {
  ParameterSpec spec;
  spec.name = name;
  spec.rows = 2;
  spec.cols = 3;
  spec.layer = layer;
  return spec;
}

class FaultInjectorTest : public ::testing::Test {
 protected:
  FaultInjector injector(const std::string& text) {
    return {faults_from_text(text).value(), folder_ / "faults.log", store_};
  }

  const testing::TemporaryFolder folder_;
  ParameterStore store_{{trained("model.embed_tokens.weight", -1), trained("model.layers.0.gate.weight", 0),
                         trained("model.layers.1.gate.weight", 1)}};
};

TEST_F(FaultInjectorTest, StrikesOnceInARunsFolder) {
  {
    FaultInjector first = injector("throw:0:2:experts");
    first.meet(in_phase(1, Phase::kExperts), 1);
    EXPECT_THROW(first.meet(in_phase(2, Phase::kExperts), 2), Error);
    first.meet(in_phase(2, Phase::kExperts), 2);
  }
  {
    FaultInjector again = injector("throw:0:2:experts");
    again.meet(in_phase(2, Phase::kExperts), 2);
  }
  FaultInjector other = injector("throw:0:2:experts,throw:0:3:experts");
  other.meet(in_phase(2, Phase::kExperts), 2);
  EXPECT_THROW(other.meet(in_phase(3, Phase::kExperts), 3), Error);
}

TEST_F(FaultInjectorTest, FillsTheDiskForOneWrite) {
  FaultInjector faults = injector("enospc:0:2:optimizer");
  replace_file(folder_ / "file", "before");
  faults.meet(in_phase(2, Phase::kOptimizer), 2);
  try {
    replace_file(folder_ / "file", "after");
    FAIL() << "it was written";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  }
  EXPECT_EQ(read_text_file(folder_ / "file"), "before");
  replace_file(folder_ / "file", "after");
  EXPECT_EQ(read_text_file(folder_ / "file"), "after");
}

TEST_F(FaultInjectorTest, ShortensAWriteThatThenGoesOn) {
  FaultInjector faults = injector("short-write:0:2:optimizer");
  faults.meet(in_phase(2, Phase::kOptimizer), 2);
  replace_file(folder_ / "file", "the whole of it");
  EXPECT_EQ(read_text_file(folder_ / "file"), "the whole of it");
}

TEST_F(FaultInjectorTest, StrikesInTheStagesOfACheckpoint) {
  const std::filesystem::path partial = folder_ / ".checkpoint-6.partial";
  std::filesystem::create_directory(partial);
  for (const std::string stage : {"write", "fsync"}) {
    FaultInjector faults = injector("throw:0:6:" + stage);
    EXPECT_THROW(replace_file(partial / "config.json", "{}"), Error) << stage;
    EXPECT_NO_THROW(replace_file(partial / "config.json", "{}")) << stage;
  }
  {
    FaultInjector faults = injector("throw:0:6:reserve");
    EXPECT_NO_THROW(replace_file(partial / "config.json", "{}"));
    EXPECT_THROW(observed_bytes(FileStage::kReserve, partial / "model.safetensors", 64), Error);
  }
  FaultInjector faults = injector("throw:0:6:manifest");
  EXPECT_NO_THROW(replace_file(partial / "config.json", "{}"));
  EXPECT_THROW(replace_file(partial / "manifest.json", "{}"), Error);
}

TEST_F(FaultInjectorTest, PutsANanIntoTheGradientOfItsPhaseAsOftenAsTheStepIsRun) {
  FaultInjector faults = injector("nan:0:2:router:1");
  const auto& gradient = store_.find("model.layers.1.gate.weight").grad;
  faults.meet_gradients(1);
  EXPECT_TRUE(std::isfinite(gradient.data[0]));
  faults.meet_gradients(2);
  EXPECT_TRUE(std::isnan(gradient.data[0]));
  gradient.data[0] = 0;
  faults.meet_gradients(2);
  EXPECT_TRUE(std::isnan(gradient.data[0]));
  EXPECT_TRUE(std::isfinite(store_.find("model.layers.0.gate.weight").grad.data[0]));
}

TEST_F(FaultInjectorTest, FlipsABitOfAWeight) {
  FaultInjector faults = injector("flip:0:2:router:0");
  float& weight = store_.find("model.layers.0.gate.weight").value.data[0];
  weight = 1;
  faults.meet(in_phase(2, Phase::kRouter), 2);
  EXPECT_EQ(weight, 1) << "another layer";
  Position there = in_phase(2, Phase::kRouter);
  there.layer = 0;
  faults.meet(there, 2);
  EXPECT_NE(weight, 1);
  EXPECT_NEAR(weight, 1, 1e-3) << "nothing but a comparison finds it";
}

TEST_F(FaultInjectorTest, IsSlowForSeveralPhases) {
  FaultInjector faults = injector("slow:0:2:data");
  const auto start = std::chrono::steady_clock::now();
  faults.meet(in_phase(2, Phase::kData), 2);
  faults.meet(in_phase(2, Phase::kEmbed), 2);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(2 * kSlowSeconds));
}

TEST_F(FaultInjectorTest, TakesTheFirstParameterForAPhaseThatHasNone) {
  EXPECT_EQ(parameter_of_phase(store_, "embed", -1).spec.name, "model.embed_tokens.weight");
  EXPECT_EQ(parameter_of_phase(store_, "router", 1).spec.name, "model.layers.1.gate.weight");
  EXPECT_EQ(parameter_of_phase(store_, "dispatch", 1).spec.name, "model.layers.1.gate.weight");
  EXPECT_EQ(parameter_of_phase(store_, "reduce", -1).spec.name, "model.embed_tokens.weight");
}

}  // namespace
}  // namespace moeloom
