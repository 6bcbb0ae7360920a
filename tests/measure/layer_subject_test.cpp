#include "measure/layer_subject.hpp"

#include "moeloom/kernels/registry.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr LayerSizes kSizes{.hidden = 16, .inter = 8, .experts = 8, .top_k = 2};
constexpr std::uint64_t kLayerSeed = 3;

Mesh layer_mesh(Index ep) {
  return Mesh(Communicator::world(), MeshShape{0, ep});
}

KernelTable grouped_kernels() {
  KernelTable table;
  table.swiglu = fused_swiglu();
  table.grouped_matmul = packed_grouped_matmul();
  return table;
}

TEST(LayerSubject, ComputesTheSameAtEveryEpWhateverTheRouting) {
  const Mesh without_ep = layer_mesh(1), with_ep = layer_mesh(Communicator::world().size());
  for (const Workload workload : kWorkloads) {
    LayerInputs inputs(kSizes, workload, 40, with_ep.world(), kLayerSeed);
    const LayerCheck check(kSizes, without_ep, inputs, kLayerSeed);
    LayerSubject subject(kSizes, with_ep, grouped_kernels(), {}, kLayerSeed);
    EXPECT_LE(check.error_of(subject, inputs), LayerCheck::tolerance(DType::kF32)) << name_of(workload);
    EXPECT_GT(subject.step(inputs).expert_load, 0) << name_of(workload);
  }
}

TEST(LayerSubject, AWrongGradientIsSeenByItsCheck) {
  const Mesh mesh = layer_mesh(Communicator::world().size());
  LayerInputs inputs(kSizes, Workload::kRandom, 40, mesh.world(), kLayerSeed);
  const LayerCheck check(kSizes, layer_mesh(1), inputs, kLayerSeed);
  KernelTable wrong = grouped_kernels();
  wrong.grouped_matmul.input_grad = [](const GroupedWeights&, const PackedWeights&, ConstRows,
                                       const GroupedRows&, MatrixView dx) { fill(dx, 0.5f); };
  LayerSubject subject(kSizes, mesh, wrong, {}, kLayerSeed);
  EXPECT_GT(check.error_of(subject, inputs), 1e-2);
}

TEST(LayerSubject, AStepSaysWhereItsTimeWent) {
  const Mesh mesh = layer_mesh(1);
  LayerInputs inputs(kSizes, Workload::kBalanced, 40, mesh.world(), kLayerSeed);
  inputs.prepare(0);
  LayerSubject subject(kSizes, mesh, {}, {}, kLayerSeed);
  const StepSample sample = subject.step(inputs);
  double sum = 0;
  for (std::size_t i = 0; i < kPhases; ++i) {
    EXPECT_EQ(sample.phase_seconds[i], subject.forward_seconds()[i] + subject.backward_seconds()[i]);
    sum += sample.phase_seconds[i];
  }
  EXPECT_NEAR(sample.seconds, sum, 1e-9);
  EXPECT_EQ(sample.row_bytes, 0) << "every expert is here";
}

}  // namespace
}  // namespace moeloom
