#include "train/sharded_optimizer.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <array>
#include <bit>
#include <limits>

#include "serial_optimizer.hpp"
#include "support/expect_error.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

std::vector<MeshShape> meshes() {
  return all_meshes(Communicator::world().size());
}

std::string name_of(const MeshShape& shape) {
  return shape.text() + ", " + shape.order.back() + " fastest";
}

/// Weights everywhere, moments where they are owned, and update counts. Tolerances: a few float roundings a
/// step of weights below 1, of first moments below `gradient`, of second ones below its square.
void expect_state(ShardedRun& run, const SerialOptimizer& serial, double gradient) {
  double w_gap = 0, m_gap = 0, v_gap = 0;
  run.each_element([&](Index p, Index element, float& value, float&) {
    w_gap = std::max(w_gap, std::abs(static_cast<double>(value) - serial.state(p, element).w));
  });
  for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
    const Parameter& parameter = run.store.parameters()[at(block.parameter)];
    const Index first = ShardedRun::first_element(parameter.spec) + block.begin - parameter.offset;
    for (Index i = 0; i < block.count; ++i) {
      const SerialOptimizer::State& expected = serial.state(block.parameter, first + i);
      const double m = run.optimizer.moments().words(Moment::kFirst)[at(block.state + i)];
      const double v = run.optimizer.moments().words(Moment::kSecond)[at(block.state + i)];
      m_gap = std::max(m_gap, std::abs(m - expected.m));
      v_gap = std::max(v_gap, std::abs(v - expected.v));
    }
  }
  EXPECT_LE(w_gap, 1e-6);
  EXPECT_LE(m_gap, 1e-6 * gradient);
  EXPECT_LE(v_gap, 2e-6 * gradient * gradient);
  for (Index p = 0; p < std::ssize(run.store.parameters()); ++p) {
    const ParameterSpec& spec = run.store.parameters()[at(p)].spec;
    for (Index group = 0; group < spec.groups; ++group)
      EXPECT_EQ(run.optimizer.times()[at(p)][at(group)], serial.time(p, spec.group_ids[at(group)]))
          << spec.name;
  }
}

void expect_serial_training(ModelSpecs model, const OptimizerSettings& settings, const Gradient& gradient,
                            const std::vector<ExpertRows>& rows_by_step, double largest_gradient) {
  SerialOptimizer serial(model, settings);
  std::vector<double> norms;
  for (std::size_t step = 0; step < rows_by_step.size(); ++step)
    norms.push_back(serial.step(gradient, static_cast<Index>(step), rows_by_step[step]));
  for (const MeshShape& shape : meshes()) {
    SCOPED_TRACE(name_of(shape));
    ShardedRun run(shape, model, settings);
    for (std::size_t step = 0; step < rows_by_step.size(); ++step)
      EXPECT_NEAR(run.step(gradient, static_cast<Index>(step), rows_by_step[step]), norms[step],
                  1e-12 * norms[step]);
    expect_state(run, serial, largest_gradient);
  }
}

TEST(ShardedOptimizer, TrainsAsOneProcessDoesOnEveryMesh) {
  expect_serial_training(sparse_model, {.max_grad_norm = 0}, sixteenths, {3, ExpertRows()}, 2.0);
}

TEST(ShardedOptimizer, TrainsADenseModelWhoseExpertArenaIsEmpty) {
  expect_serial_training(dense_model, {.max_grad_norm = 0}, sixteenths, {3, ExpertRows()}, 2.0);
}

TEST(ShardedOptimizer, ClipsByTheNormOverTheWholeModel) {
  const double norm = SerialOptimizer(dense_model, {}).step(sixteenths, 0);
  ASSERT_GT(norm, 1.0);
  for (const double max_norm : {0.25 * norm, 100 * norm})
    expect_serial_training(dense_model, {.max_grad_norm = max_norm}, sixteenths, {3, ExpertRows()},
                           2.0 * std::min(1.0, max_norm / norm));
  const double sparse_norm = SerialOptimizer(sparse_model, {}).step(sixteenths, 0);
  expect_serial_training(sparse_model, {.max_grad_norm = 1.0}, sixteenths, {2, ExpertRows()},
                         2.0 / sparse_norm);
}

TEST(ShardedOptimizer, SparesNormsAndBiasesDecayUnlessAllDecays) {
  for (const bool decay_all : {false, true})
    expect_serial_training(dense_model, {.adamw = {.weight_decay = 2.0}, .decay_all = decay_all}, sixteenths,
                           {2, ExpertRows()}, 2.0);
}

/// Layer 0 starves experts 1 and 4 in step 1, layer 2 expert 0 in every step.
const std::vector<ExpertRows> kStarving = {{{1, 2, 3, 4, 5}, {}, {0, 1, 1, 1, 1}},
                                           {{7, 0, 1, 1, 0}, {}, {0, 9, 0, 0, 0}},
                                           {{1, 1, 1, 1, 1}, {}, {0, 1, 1, 1, 1}}};

/// The specs looked up once a parameter, not once an element.
Gradient starving_gradient() {
  std::vector<ParameterSpec> specs = sparse_model(kAllExperts);
  return [specs = std::move(specs)](Index step, Index contribution, Index parameter, Index element) {
    const ParameterSpec& spec = specs[at(parameter)];
    if (spec.placement == Placement::kExperts) {
      const Index expert = element / (spec.rows / kExperts * spec.cols);
      if (kStarving[at(step)][at(spec.layer)][at(expert)] == 0) return 0.0f;
    }
    return sixteenths(step, contribution, parameter, element);
  };
}

TEST(ShardedOptimizer, SkipsOrDecaysStarvedExpertsTimeIncluded) {
  for (const StarvedExperts starved : {StarvedExperts::kSkip, StarvedExperts::kDecay})
    expect_serial_training(sparse_model, {.max_grad_norm = 0, .starved = starved}, starving_gradient(),
                           kStarving, 2.0);
}

/// Bits of everything that training leaves behind on this rank: weights, and moments by their place.
std::vector<std::uint32_t> bits_of(ShardedRun& run) {
  std::vector<std::uint32_t> bits;
  run.each_element(
      [&](Index, Index, float& value, float&) { bits.push_back(std::bit_cast<std::uint32_t>(value)); });
  return bits;
}

/// The same elements of a run that holds everything.
std::vector<std::uint32_t> bits_of_part(ShardedRun& whole, ShardedRun& part) {
  std::vector<std::uint32_t> bits;
  part.each_element([&](Index p, Index element, float&, float&) {
    bits.push_back(std::bit_cast<std::uint32_t>(whole.store.parameters()[at(p)].value.data[element]));
  });
  return bits;
}

TEST(ShardedOptimizer, AddsTheNormInOneOrderOnEveryMesh) {
  ShardedRun alone(Mesh::single(), sparse_model);
  const double expected = alone.step(from_the_last, 0);
  EXPECT_NEAR(expected, SerialOptimizer(sparse_model, {}).step(from_the_last, 0), 1e-12 * expected);
  for (const MeshShape& shape : meshes()) {
    ShardedRun run(shape, sparse_model);
    EXPECT_EQ(run.step(from_the_last, 0), expected) << name_of(shape);
  }
}

TEST(ShardedOptimizer, AddsGradientsAlongTheTreeOfTheWorldOnEveryMeshWhoseRowsAreSubtrees) {
  const Index world = Communicator::world().size();
  if (!std::has_single_bit(static_cast<std::uint64_t>(world)))
    GTEST_SKIP() << world << " ranks split unevenly";
  ShardedRun alone(Mesh::single(), sparse_model);
  std::vector<double> norms;
  for (Index step = 0; step < 3; ++step) norms.push_back(alone.step(rounded, step));
  for (const MeshShape& shape : meshes()) {
    if (shape.order.back() == "dp" && shape.dp > 1 && shape.ep > 1) continue;  // strided rows
    SCOPED_TRACE(name_of(shape));
    ShardedRun run(shape, sparse_model);
    for (Index step = 0; step < 3; ++step) EXPECT_EQ(run.step(rounded, step), norms[at(step)]);
    EXPECT_EQ(bits_of(run), bits_of_part(alone, run));
  }
}

TEST(ShardedOptimizer, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = threads();
  std::vector<std::vector<std::uint32_t>> bits;
  for (const int count : {1, 3}) {
    set_threads(count);
    ShardedRun run(meshes().front(), sparse_model);
    run.step(rounded, 0);
    bits.push_back(bits_of(run));
  }
  set_threads(before);
  EXPECT_EQ(bits[0], bits[1]);
}

/// How often each block of the model is owned, by norm_place(); checks the blocks on the way.
std::vector<std::int64_t> owners_of_blocks(const ShardedRun& run, Index blocks_of_model) {
  std::vector<std::int64_t> owners(at(blocks_of_model));
  Index state = 0;
  for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
    const Parameter& parameter = run.store.parameters()[at(block.parameter)];
    const Index each = parameter.value.size() / parameter.spec.groups;
    const Index inside = block.begin - parameter.offset - block.group * each;
    EXPECT_EQ(block.placement, parameter.spec.placement);
    EXPECT_EQ(inside % ShardedOptimizer::kBlockElements, 0) << "cut from the start of its own unit";
    EXPECT_EQ(block.count, std::min(ShardedOptimizer::kBlockElements, each - inside));
    EXPECT_EQ(block.state, state) << "moments lie in the order of the blocks";
    state += block.count;
    ++owners.at(at(run.optimizer.norm_place(block)));
  }
  run.mesh.world().all_sum(owners);
  return owners;
}

TEST(ShardedOptimizer, GivesEveryBlockToOneOwnerAndShardsTheMomentsSo) {
  const Index blocks = 2 + 1 + kExperts + 2 * kExperts + 1 + 0 + 1 + kExperts + 1;
  const Index elements = 300 * 301 + 37 + 1 + 256 * 256 + 7 * 11 + kExperts * (5 * 17 + 263 * 257 + 3);
  for (const MeshShape& shape : meshes()) {
    SCOPED_TRACE(name_of(shape));
    ShardedRun run(shape, sparse_model);
    EXPECT_EQ(owners_of_blocks(run, blocks), std::vector<std::int64_t>(at(blocks), 1));
    std::int64_t owned = std::ssize(run.optimizer.moments().words(Moment::kFirst));
    EXPECT_EQ(std::ssize(run.optimizer.moments().words(Moment::kSecond)), owned);
    const Index fair =
        run.store.size(Placement::kWorld) / shape.world() + run.store.size(Placement::kExperts) / shape.dp;
    EXPECT_LE(owned, fair + 2 * ShardedOptimizer::kBlockElements) << "a block too many in each arena at most";
    run.mesh.world().all_sum(std::span(&owned, 1));
    EXPECT_EQ(owned, elements);
  }
}

TEST(ShardedOptimizer, ReducesAnArenaThatFitsABucketInOneExchange) {
  for (const MeshShape& shape : meshes()) {
    ShardedRun run(shape, sparse_model);
    run.fill_gradients(sixteenths, 0);
    const auto calls = [&] {
      return std::array{run.mesh.world().traffic().calls, run.mesh.dp().traffic().calls};
    };
    const auto before = calls();
    run.optimizer.reduce_gradients();
    EXPECT_EQ(calls()[0] - before[0], shape.world() - 1) << name_of(shape);
    EXPECT_EQ(calls()[1] - before[1], shape.dp - 1) << name_of(shape);
  }
}

TEST(ShardedOptimizer, WorksThroughAnArenaOfSeveralBuckets) {
  const ModelSpecs wide = [](ExpertRange) {
    return std::vector<ParameterSpec>{dense("head", 2300, 2300), dense("scale", 1, 3, false)};  // 5.3 million
  };
  SerialOptimizer serial(wide, {.max_grad_norm = 0});
  const double norm = serial.step(sixteenths, 0);
  ShardedRun run(meshes().front(), wide, {.max_grad_norm = 0});
  EXPECT_NEAR(run.step(sixteenths, 0), norm, 1e-12 * norm);
  expect_state(run, serial, 2.0);
}

TEST(ShardedOptimizer, TellsPackedFacesThatWeightsChanged) {
  ShardedRun run(meshes().front(), dense_model);
  const std::uint64_t before = run.store.version();
  run.step(sixteenths, 0);
  EXPECT_NE(run.store.version(), before);
}

TEST(ShardedOptimizer, RefusesToSkipWithoutRowsAndToShareExpertsWithARankThatHasNone) {
  ShardedRun run(meshes().front(), sparse_model, {.starved = StarvedExperts::kSkip});
  for (const ExpertRows& rows :
       {ExpertRows(), ExpertRows{{1, 1, 1, 1, 1}}, ExpertRows{{1, 1}, {}, {1, 1, 1, 1, 1}}})
    EXPECT_THROW(run.optimizer.update(0.01, 1.0, rows), ShapeError);
  const ModelSpecs none_here = [](ExpertRange) {
    return std::vector<ParameterSpec>{experts("experts.0.down", 0, 2, 2, {5, 0})};
  };
  const auto message = message_of<ShapeError>([&] { ShardedRun(Mesh::single(), none_here); });
  EXPECT_NE(message.find("a rank must hold an expert of experts.0.down"), std::string::npos) << message;
}

}  // namespace
}  // namespace moeloom
