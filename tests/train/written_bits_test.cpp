// Whole training steps beside losses that are written here to the last bit: so that no compiler, no -O and no
// width of vectors decides them.
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Written {
  const char* name;
  TrainingRunSettings settings;
  double loss, grad_norm;  // of the third step
};

TEST(WrittenBits, OfTrainingStepsAreThoseOfEveryCompiler) {
#if !defined(__FMA__) || !defined(__GLIBC__)
  GTEST_SKIP() << "the written losses are those of x86-64 with FMA and of glibc's logarithms";
#endif
  const Written all[] = {
      {"qwen3_moe", {}, 0, 0},
      {"packed, bf16 moments", {.packed = true, .moments = MomentFormat::kBf16}, 0, 0},
      {"Muon", {.optimizer_kind = OptimizerKind::kMuon}, 0, 0},
      {"deepseek_v3", {.model = deepseek_config()}, 0, 0},
      {"lfm2_moe", {.model = hybrid_config("lfm2_moe")}, 0, 0},
      {"qwen3_next", {.model = hybrid_config("qwen3_next")}, 0, 0},
      {"gpt_oss", {.model = biased_config()}, 0, 0},
  };
  for (const Written& written : all) {
    const std::vector<double> losses = TrainingRun(shape_of(1, 1), written.settings).losses(3);
    SCOPED_TRACE(::testing::Message()
                 << written.name << std::hexfloat << " " << losses[4] << ", " << losses[5]);
    EXPECT_EQ(losses[4], written.loss);
    EXPECT_EQ(losses[5], written.grad_norm);
  }
}

}  // namespace
}  // namespace moeloom
