// Muon over many ranks against its definition on one, in double.
#include <algorithm>
#include <cmath>

#include "muon_reference.hpp"
#include "sharded_run.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

ParameterSpec of_layer(ParameterSpec spec, Index layer, std::vector<HfSlice> slices = {}) {
  spec.layer = layer;
  spec.slices = std::move(slices);
  return spec;
}

HfSlice rows_of_tensor(const char* name, Index begin, Index rows, Index cols) {
  return {.name = name, .row_begin = begin, .rows = rows, .shape = {rows, cols}};
}

/// Matrices wider and taller than the other side, of more than a block, cut by slices and by name; and what
/// AdamW keeps.
std::vector<ParameterSpec> muon_model(ExpertRange here) {
  return {dense("embedding", 30, 31),
          of_layer(
              dense("layers.0.qkv_proj.weight", 12, 20), 0,
              {rows_of_tensor("q", 0, 8, 20), rows_of_tensor("k", 8, 2, 20), rows_of_tensor("v", 10, 2, 20)}),
          of_layer(dense("layers.0.o_proj.weight", 300, 250), 0),
          of_layer(dense("layers.0.norm.weight", 1, 20, false), 0),
          of_layer(dense("layers.0.mlp.gate.weight", 5, 20), 0),
          experts("layers.0.mlp.experts.gate_up_proj", 0, 26, 20, here),
          experts("layers.0.mlp.experts.down_proj", 0, 20, 13, here)};
}

constexpr OptimizerSettings kMuonSettings{.adamw = {.weight_decay = 0.2}, .max_grad_norm = 0};

Job muon_job() {
  return {.keeping = {.optimizer = OptimizerKind::kMuon}};
}

/// Of the parameters of Muon, all groups, after steps of `sixteenths`.
struct SerialMuon {
  std::vector<ParameterSpec> specs = muon_model(kAllExperts);
  std::vector<std::vector<double>> w, m;

  SerialMuon() {
    for (std::size_t p = 0; p < specs.size(); ++p) {
      w.emplace_back();
      for (Index i = 0; i < specs[p].rows * specs[p].cols; ++i)
        w[p].push_back(start_weight(static_cast<Index>(p), i));
      m.emplace_back(w[p].size());
    }
  }

  void step(Index step, double learning_rate) {
    for (std::size_t p = 0; p < specs.size(); ++p) {
      const ParameterSpec& spec = specs[p];
      if (!is_of_muon(spec, OptimizerKind::kMuon)) continue;
      std::vector<double> update(w[p].size());
      for (std::size_t i = 0; i < update.size(); ++i) {
        double g = 0;
        for (Index c = 0; c < kContributions; ++c)
          g += sixteenths(step, c, static_cast<Index>(p), static_cast<Index>(i));
        m[p][i] = 0.95 * m[p][i] + g;
        update[i] = g + 0.95 * m[p][i];
      }
      const Index rows = spec.rows / spec.groups, cols = spec.cols;
      for (Index group = 0; group < spec.groups; ++group)
        for (const Stretch& matrix : matrices_of(spec)) {
          const auto first = at((group * rows + matrix.begin) * cols);
          std::vector<double> u(update.begin() + static_cast<Index>(first),
                                update.begin() + static_cast<Index>(first) + matrix.size() * cols);
          const bool is_tall = matrix.size() > cols;
          if (is_tall) u = transposed(u, matrix.size(), cols);
          u = newton_schulz(u, std::min(matrix.size(), cols), std::max(matrix.size(), cols), 5);
          if (is_tall) u = transposed(u, cols, matrix.size());
          const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(matrix.size(), cols)));
          for (std::size_t i = 0; i < u.size(); ++i)
            w[p][first + i] = (1 - learning_rate * 0.2) * w[p][first + i] - learning_rate * scale * u[i];
        }
    }
  }
};

void train(ShardedRun& run, Index steps) {
  for (Index step = 0; step < steps; ++step) {
    run.fill_gradients(sixteenths, step);
    run.optimizer.reduce_gradients();
    run.optimizer.update(0.05, run.optimizer.gradient_norm(), {});
  }
}

TEST(MuonOptimizer, TakesMatricesOfLayersAndLeavesTheRestToAdamW) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : muon_model(kAllExperts))
    if (is_of_muon(spec, OptimizerKind::kMuon)) names.push_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.qkv_proj.weight", "layers.0.o_proj.weight",
                                             "layers.0.mlp.experts.gate_up_proj",
                                             "layers.0.mlp.experts.down_proj"}));
  for (const ParameterSpec& spec : muon_model(kAllExperts))
    EXPECT_FALSE(is_of_muon(spec, OptimizerKind::kAdamW));
  const auto specs = muon_model(kAllExperts);
  const auto rows_of = [](const ParameterSpec& spec) {
    std::vector<Index> rows;
    for (const Stretch& matrix : matrices_of(spec)) rows.push_back(matrix.size());
    return rows;
  };
  EXPECT_EQ(rows_of(specs[1]), (std::vector<Index>{8, 2, 2}));
  EXPECT_EQ(rows_of(specs[2]), (std::vector<Index>{300}));
  EXPECT_EQ(rows_of(specs[5]), (std::vector<Index>{13, 13}));
}

TEST(MuonOptimizer, TrainsAsItsDefinitionOnEveryMeshWithTheSameBits) {
  constexpr Index kSteps = 3;
  SerialMuon serial;
  for (Index step = 0; step < kSteps; ++step) serial.step(step, 0.05);
  ShardedRun alone(Mesh::single(), muon_model, kMuonSettings, muon_job());
  train(alone, kSteps);
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(shape.text());
    ShardedRun run(shape, muon_model, kMuonSettings, muon_job());
    train(run, kSteps);
    double gap = 0;
    std::int64_t differing = 0;
    run.each_element([&](Index p, Index element, float& value, float&) {
      differing += value != alone.store.parameters()[at(p)].value.data[element] ? 1 : 0;
      if (is_of_muon(serial.specs[at(p)], OptimizerKind::kMuon))
        gap = std::max(gap, std::abs(static_cast<double>(value) - serial.w[at(p)][at(element)]));
    });
    EXPECT_LE(gap, 2e-4) << "fp32 products, five times squared";
    EXPECT_EQ(differing, 0);
  }
}

TEST(MuonOptimizer, OneRankOwnsAllOfAMatrixAndNoSecondMoment) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    ShardedRun run(shape, muon_model, kMuonSettings, muon_job());
    std::map<std::pair<Index, Index>, Index> owned;
    for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
      const ParameterSpec& spec = run.store.parameters()[at(block.parameter)].spec;
      if (!is_of_muon(spec, OptimizerKind::kMuon)) {
        EXPECT_GE(block.second, 0);
        continue;
      }
      EXPECT_EQ(block.second, -1);
      owned[{block.parameter, block.group}] += block.count;
    }
    for (const auto& [weight, count] : owned) {
      const ParameterSpec& spec = run.store.parameters()[at(weight.first)].spec;
      EXPECT_EQ(count, spec.rows / spec.groups * spec.cols) << spec.name;
    }
  }
}

TEST(MuonOptimizer, LearnsAlikeOnEveryMeshInEveryFormat) {
  const Index world = Communicator::world().size();
  for (const MomentFormat format : kMomentFormats) {
    SCOPED_TRACE(name_of(format));
    const auto losses = [&](const MeshShape& shape) {
      return TrainingRun(shape, {.exact = 1, .moments = format, .optimizer_kind = OptimizerKind::kMuon})
          .losses(10);
    };
    const std::vector<double> found = losses(shape_of(world, 1));
    EXPECT_LT(found[found.size() - 2], 0.95 * found[0]) << "it learns";
    for (const MeshShape& shape : meshes_of(world)) EXPECT_EQ(losses(shape), found) << shape.text();
  }
}

}  // namespace
}  // namespace moeloom
