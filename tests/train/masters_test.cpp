#include "train/adamw.hpp"

#include <cmath>

#include "support/expect_error.hpp"
#include "support/random_matrix.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TrainingRun;

constexpr Index kCount = 700;

/// A weight of kCount numbers in memory of its own.
struct Weight {
  Matrix floats{1, kCount};
  std::vector<std::uint16_t> high = std::vector<std::uint16_t>(kCount),
                             low = std::vector<std::uint16_t>(kCount);

  StoredRows rows(Storage storage) {
    if (storage == Storage::kFp32) return floats.view();
    return {Bf16View(high.data(), 1, kCount), storage == Storage::kSplit ? low.data() : nullptr};
  }
};

std::vector<float> numbers_of(const StoredRows& rows) {
  Matrix memory;
  const auto numbers = rows.read(memory).flat();
  return {numbers.begin(), numbers.end()};
}

AdamWUpdate update_at(Index time) {
  return {.learning_rate = 0.01,
          .grad_scale = 0.5,
          .weight_decay = 0.1,
          .time = time,
          .rounding = static_cast<std::uint64_t>(7 * time)};
}

TEST(Masters, InTwoHalvesAreUpdatedAsFloatsAreBitForBit) {
  for (const MomentFormat format : kMomentFormats) {
    SCOPED_TRACE(name_of(format));
    Weight floats, halves;
    Moments of_floats(format, 1024, 1024), of_halves(format, 1024, 1024);
    const Matrix start = testing::random_matrix(1, kCount, 3);
    const StoredRows w = floats.rows(Storage::kFp32), split = halves.rows(Storage::kSplit);
    w.write(start.view().flat());
    split.write(start.view().flat());
    for (Index time = 1; time <= 5; ++time) {
      const Matrix grad = testing::random_matrix(1, kCount, 40 + static_cast<std::uint64_t>(time));
      const auto update = [&](const StoredRows& rows, Moments& moments) {
        adamw_update({}, update_at(time), grad.view().flat(), rows, moments.view(Moment::kFirst, 0, kCount),
                     moments.view(Moment::kSecond, 0, kCount));
      };
      update(w, of_floats);
      update(split, of_halves);
      EXPECT_EQ(numbers_of(split), numbers_of(w));
      for (const Moment each : {Moment::kFirst, Moment::kSecond})
        EXPECT_TRUE(
            std::ranges::equal(std::as_bytes(of_halves.words(each)), std::as_bytes(of_floats.words(each))));
    }
  }
}

/// Each number becomes one of the two neighbours of what a float would be, and the mean stays.
TEST(Masters, InBf16AreRoundedToANeighbourAtRandom) {
  Weight floats, rounded;
  const StoredRows w = floats.rows(Storage::kFp32), bf16 = rounded.rows(Storage::kBf16);
  std::vector<float> start(kCount, 1.0f);
  const Matrix grad = testing::random_matrix(1, kCount, 5);
  double sum = 0, expected_sum = 0;
  Index moved = 0;
  for (Index time = 1; time <= 40; ++time) {
    for (const StoredRows& rows : {w, bf16}) {
      rows.write(start);
      Moments moments(MomentFormat::kFp32, 1024, 1024);
      AdamWUpdate update = update_at(1);
      update.learning_rate = 1e-3;  // an eighth of what bf16 tells apart at 1
      update.rounding = static_cast<std::uint64_t>(time);
      adamw_update({}, update, grad.view().flat(), rows, moments.view(Moment::kFirst, 0, kCount),
                   moments.view(Moment::kSecond, 0, kCount));
    }
    const std::vector<float> exact = numbers_of(w), found = numbers_of(bf16);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_LE(std::abs(found[i] - exact[i]), 1.0f / 128) << i;
      sum += found[i];
      expected_sum += exact[i];
      moved += found[i] != start[i] ? 1 : 0;
    }
  }
  const double count = 40.0 * kCount;
  EXPECT_NEAR(sum / count, expected_sum / count, 5 * (1.0 / 128) / std::sqrt(12 * count)) << "no bias";
  EXPECT_GT(moved, 0.05 * count);
  EXPECT_LT(moved, 0.5 * count);
}

TEST(Masters, TrainAlikeOnEveryMeshAndAsWellAsFloats) {
  const Index world = Communicator::world().size();
  constexpr Index kSteps = 14;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    const auto losses = [&](Storage masters, MeshShape shape) {
      return TrainingRun(shape, {.exact = 1, .masters = masters, .optimizer_kind = kind}).losses(kSteps);
    };
    const std::vector<double> fp32 = losses(Storage::kFp32, testing::shape_of(world, 1));
    const double last = fp32[fp32.size() - 2];
    EXPECT_LT(last, 0.9 * fp32[0]) << "it learns";
    for (const Storage masters : {Storage::kSplit, Storage::kBf16}) {
      SCOPED_TRACE(std::string(name_of(masters)) + ", " + std::string(name_of(kind)));
      const std::vector<double> found = losses(masters, testing::shape_of(world, 1));
      EXPECT_NEAR(found[found.size() - 2], last, 0.02 * last);
      EXPECT_NE(found, fp32);
      for (const MeshShape& shape : testing::meshes_of(world))
        EXPECT_EQ(losses(masters, shape), found) << shape.text();
    }
  }
}

/// A reference that keeps fp32 masters beside the model: products see them rounded, the update changes them.
TEST(Masters, InTwoHalvesTakeTheCourseOfFp32MastersBesideBf16Weights) {
  const MeshShape shape = testing::shape_of(Communicator::world().size(), 1);
  TrainingRun run(shape, {.masters = Storage::kSplit});
  TrainingRun reference(shape, {});
  std::map<std::string, std::vector<float>> masters;
  for (const Parameter& parameter : reference.store.parameters())
    masters[parameter.spec.name].assign(parameter.value.flat().begin(), parameter.value.flat().end());
  for (Index step = 0; step < 5; ++step) {
    for (const Parameter& parameter : reference.store.parameters()) {
      const bool halved = run.store.find(parameter.spec.name).halves.data != nullptr;
      std::ranges::transform(masters[parameter.spec.name], parameter.value.flat().begin(),
                             [&](float w) { return halved ? bf16_to_float(split(w).high) : w; });
    }
    reference.store.mark_changed();
    const auto gradients = [step](TrainingRun& each) {
      each.store.restart_gradients();
      each.decoder.forward_backward(each.batches.train(step, 0, each.mesh.world().rank()), {.lm = 0.01});
      each.optimizer.reduce_gradients();
      return each.optimizer.gradient_norm();
    };
    const double norm = gradients(reference);
    EXPECT_EQ(gradients(run), norm) << step;
    for (const Parameter& parameter : reference.store.parameters())
      std::ranges::copy(masters[parameter.spec.name], parameter.value.flat().begin());
    reference.optimizer.update(1e-3, norm, {});
    run.optimizer.update(1e-3, norm, {});
    for (const Parameter& parameter : reference.store.parameters())
      masters[parameter.spec.name].assign(parameter.value.flat().begin(), parameter.value.flat().end());
    EXPECT_EQ(run.weights_by_name(), reference.weights_by_name()) << step;
  }
}

}  // namespace
}  // namespace moeloom
