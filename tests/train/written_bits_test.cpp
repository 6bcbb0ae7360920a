// Whole training steps beside losses that are written here to the last bit: so that no compiler, no -O, no
// glibc and no width of vectors decides them.
#include "moeloom/tensor/gemm.hpp"

#include <string>

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
  GTEST_SKIP() << "the written losses are those of x86-64 with FMA and of glibc";
#endif
  const std::string blas = blas_library();  // whose products have an order by the processor
  if (blas.find("Haswell") == std::string::npos && blas.find("Zen") == std::string::npos)
    GTEST_SKIP() << "the written losses are those of OpenBLAS for AVX2 (OPENBLAS_CORETYPE=Haswell), not of "
                 << blas;
  const Written all[] = {
      {"qwen3_moe", {}, 0x1.4ea605ae58ed3p+2, 0x1.e67ff18ab7f25p+0},
      {"packed, bf16 moments",
       {.packed = true, .moments = MomentFormat::kBf16},
       0x1.4ea6329b72c14p+2,
       0x1.e68071cc0e1fdp+0},
      {"Muon", {.optimizer_kind = OptimizerKind::kMuon}, 0x1.5aaa8d740a44fp+2, 0x1.2b546167bda48p+1},
      {"deepseek_v3",
       {.aux_loss_coef = 0, .z_loss_coef = 0, .model = deepseek_config()},
       0x1.4b9e090562de4p+2,
       0x1.003da93725d8fp+1},
      {"lfm2_moe",
       {.aux_loss_coef = 0, .z_loss_coef = 0, .model = hybrid_config("lfm2_moe")},
       0x1.4aaf1855d5b31p+2,
       0x1.ecffa415561fcp+0},
      {"qwen3_next", {.model = hybrid_config("qwen3_next")}, 0x1.4e9a9fb66fd1ap+2, 0x1.054588e29b374p+2},
      {"gpt_oss", {.z_loss_coef = 0, .model = biased_config()}, 0x1.482a69d7c3b18p+2, 0x1.c88a3d690f464p+0},
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
