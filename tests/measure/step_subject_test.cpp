#include "measure/step_subject.hpp"

#include "moeloom/kernels/registry.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TrainingCase tiny_training(std::optional<Workload> routing) {
  TrainingCase of{.model = {}, .sequences = 4, .sequence_length = 8, .seed = 5, .routing = routing};
  of.model.hidden_size = 16;
  of.model.moe_intermediate_size = 8;
  of.model.num_hidden_layers = 2;
  of.model.num_attention_heads = 2;
  of.model.num_key_value_heads = 1;
  of.model.head_dim = 8;
  of.model.num_experts = 8;
  of.model.num_experts_per_tok = 2;
  return of;
}

TEST(StepSubject, TrainsTheSameAtEveryEpWhateverTheRouting) {
  const Mesh without_ep(Communicator::world(), MeshShape{0, 1});
  const Mesh with_ep(Communicator::world(), MeshShape{0, Communicator::world().size()});
  const TokenSource tokens = random_text(5, 4096);
  for (const std::optional<Workload>& routing :
       {std::optional<Workload>(), std::optional<Workload>(Workload::kBalanced),
        std::optional<Workload>(Workload::kHot)}) {
    const TrainingCase of = tiny_training(routing);
    const StepCheck check(of, without_ep, tokens);
    KernelTable kernels;
    kernels.swiglu = fused_swiglu();
    kernels.grouped_matmul = packed_grouped_matmul();
    StepSubject subject(of, with_ep, tokens, kernels);
    EXPECT_LE(check.check(subject).error, StepCheck::tolerance(DType::kF32));
  }
}

/// Where weights travel under the next forward, those of one subject must not meet the messages of another.
TEST(StepSubject, SubjectsOfTheSameRanksTakeTurnsWhoseWeightsTravel) {
  const Mesh without_ep(Communicator::world(), MeshShape{0, 1});
  const Mesh with_ep(Communicator::world(), MeshShape{0, Communicator::world().size()});
  const TokenSource tokens = random_text(5, 4096);
  const TrainingCase of = tiny_training(Workload::kHot);
  const StepCheck check(of, without_ep, tokens);
  const Exchange travel{.overlap_reduce = true, .overlap_gather = true};
  StepSubject first(of, without_ep, tokens, {}, {}, travel);
  StepSubject second(of, with_ep, tokens, {}, {}, travel);
  for (int turn = 0; turn < 3; ++turn)
    for (StepSubject* subject : {&first, &second})
      if (turn == 0)
        EXPECT_LE(check.check(*subject).error, StepCheck::tolerance(DType::kF32));
      else
        EXPECT_GT(subject->step().seconds, 0);
}

TEST(StepSubject, AnotherSeedIsSeenByItsCheck) {
  const Mesh mesh(Communicator::world(), MeshShape{0, 1});
  const TokenSource tokens = random_text(5, 4096);
  TrainingCase of = tiny_training({});
  const StepCheck check(of, mesh, tokens);
  of.seed += 1;
  StepSubject subject(of, mesh, tokens, {});
  EXPECT_GT(check.check(subject).error, 1e-3);
}

TEST(StepSubject, ARoutingOfTokensLoadsTheExpertsThatItNames) {
  const Mesh mesh(Communicator::world(), MeshShape{0, 1});
  const TokenSource tokens = random_text(5, 4096);
  const TrainingCase of = tiny_training(Workload::kHot);
  StepSubject subject(of, mesh, tokens, {});
  EXPECT_NEAR(subject.step().expert_load, 4, 0.2) << "half of the rows on one of 8 experts";
}

}  // namespace
}  // namespace moeloom
