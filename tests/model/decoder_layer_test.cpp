// A layer is its parts in order: attention with its residual, then norm, MLP or experts, perhaps a norm of
// their output, and their residual; backward the same in reverse.
#include "model/decoder_layer.hpp"

#include "model/hf/initialise.hpp"
#include "model/hf/parameter_specs.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "support/random_matrix.hpp"
#include "tiny_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::kernel_table;
using testing::random_matrix;

constexpr Index kLength = 5;

/// Dense layers with a norm behind each half.
ModelConfig glm() {
  ModelConfig config = testing::loud_config();
  config.model_type = "glm4";
  config.num_experts = 0;
  config.mlp_only_layers = {};
  return config;
}

struct Case {
  const char* name;
  ModelConfig config;
  Index layer;
  void (*edit)(LayerSpec&) = [](LayerSpec&) {};
};

std::vector<Case> cases() {
  const auto scaled = [](LayerSpec& spec) { spec.residual_scale = 0.3f; };
  const auto norms_behind_alone = [](LayerSpec& spec) {
    spec.mixer_norm = spec.feed_forward_norm = std::nullopt;
  };
  return {{"experts", testing::loud_config(), 0},
          {"MLP", testing::loud_config(), 1},
          {"output norms", glm(), 0},
          {"scaled experts", testing::loud_config(), 0, scaled},
          {"scaled MLP behind norms", glm(), 0, scaled},
          {"experts without norms", testing::loud_config(), 0, norms_behind_alone},
          {"MLP with norms behind alone", glm(), 0, norms_behind_alone}};
}

bool same_bits(ConstMatrixView a, ConstMatrixView b) {
  return a.rows == b.rows && a.cols == b.cols &&
         (a.size() == 0 || std::memcmp(a.data, b.data, a.flat().size_bytes()) == 0);
}

/// Parameters of one layer on this rank, tokens of this rank (none on the second), and all that a layer is
/// given.
struct Fixture {
  Mesh mesh = testing::whole_ep(Communicator::world());
  ModelConfig config;
  LayerSpec spec;
  ParameterStore store;
  Index sequences = mesh.world().rank() == 1 ? 0 : 2;
  Matrix input = random_matrix(sequences * kLength, config.hidden_size, at(mesh.world().rank()));
  Matrix d_output = random_matrix(sequences * kLength, config.hidden_size, 9);
  std::vector<std::int32_t> positions;
  std::vector<RopeTable> ropes;
  Dispatcher dispatcher;
  ExpertRunner experts{DispatcherSettings{}};
  DecoderWorkspace workspace;
  PhaseClock clock;
  KernelTable kernels = kernel_table(true);

  explicit Fixture(const Case& c)
      : config(c.config),
        spec(config.layer(c.layer)),
        store(parameter_specs(
            config, config.has_experts() ? testing::experts_here(config, mesh) : ExpertRange{0, 1})),
        dispatcher(mesh.ep(), config.has_experts() ? config.num_experts : mesh.ep().size()) {
    c.edit(spec);
    initialise(store, config, 5);
    store.restart_gradients();
    for (Index t = 0; t < input.rows(); ++t) positions.push_back(static_cast<std::int32_t>(t % kLength));
    for (const RopeSettings& settings : config.ropes()) ropes.push_back(make_rope_table(kLength, settings));
  }
  MixerContext mixer() const { return {sequences, kLength, positions, ropes}; }
  MoeContext moe() { return {kernels, dispatcher, experts, workspace.moe, clock}; }
  LayerContext context() {
    return {.kernels = kernels, .mixer = mixer(), .moe = moe(), .workspace = workspace, .clock = clock};
  }
  std::vector<float> gradients() {
    std::vector<float> all;
    for (const Parameter& p : store.parameters())
      all.insert(all.end(), p.grad.data, p.grad.data + p.grad.size());
    return all;
  }
};

/// The experts of the layer that `spec` describes.
MoeLayer experts_of_layer(const MoeSpec& spec, const ParameterStore& store) {
  const Parameter& gate_up = store.find(spec.prefix + "experts.gate_up_proj");
  const Parameter& down = store.find(spec.prefix + "experts.down_proj");
  const Parameter& router = store.find(spec.prefix + "gate.weight");
  return MoeLayer({.router = router.value,
                   .d_router = router.grad,
                   .experts = {.experts = gate_up.spec.groups,
                               .gate_up = gate_up.value,
                               .down = down.value,
                               .d_gate_up = gate_up.grad,
                               .d_down = down.grad,
                               .activation = spec.activation}},
                  spec.router);
}

/// The parts by themselves, composed as the drawing of a step says.
struct Parts {
  Fixture& f;
  MixerLayer mixer;
  std::optional<Norm> norm;
  std::optional<MlpLayer> mlp;
  std::optional<MoeLayer> moe;
  std::optional<BranchOutput> branch_output;
  RouterStatistics statistics;
  Matrix middle, normed;
  std::vector<float> inv_rms;

  explicit Parts(Fixture& f)
      : f(f),
        mixer(f.spec.mixer, f.spec.mixer_norm, f.spec.mixer_output_norm, f.store, f.spec.residual_scale),
        statistics(f.config.num_hidden_layers, f.config.num_experts) {
    if (f.spec.mlp) mlp.emplace(*f.spec.mlp, f.store);
    if (f.spec.moe) moe.emplace(experts_of_layer(*f.spec.moe, f.store));
    if (f.spec.feed_forward_norm) norm.emplace(Norm::of(f.store, *f.spec.feed_forward_norm));
    branch_output = BranchOutput::of(f.store, f.spec.feed_forward_output_norm, f.spec.residual_scale);
  }

  Matrix forward() {
    Matrix hidden = Matrix::copy_of(f.input);
    mixer.forward(f.kernels, f.mixer(), hidden);
    middle = Matrix::copy_of(hidden);
    normed = Matrix::copy_of(middle);
    if (norm) norm->forward(f.kernels.rmsnorm, middle, normed, inv_rms);
    const MatrixView output =
        branch_output ? branch_output->input(hidden.rows(), hidden.cols()) : hidden.view();
    if (branch_output) fill(output, 0.0f);
    if (mlp) mlp->forward(f.kernels, normed, output, f.workspace.mlp);
    if (moe) moe->forward(f.moe(), normed, output, statistics);
    if (branch_output) branch_output->forward(f.kernels.rmsnorm, hidden);
    return hidden;
  }

  Matrix backward() {
    Matrix d_hidden = Matrix::copy_of(f.d_output), d_output = Matrix::copy_of(f.d_output);
    Matrix d_normed(d_hidden.rows(), d_hidden.cols());
    if (branch_output) branch_output->backward(f.kernels.rmsnorm, d_hidden, d_output);
    if (mlp) mlp->backward(f.kernels, normed, d_output, d_normed, f.workspace.mlp);
    if (moe) moe->backward(f.moe(), normed, {}, d_output, d_normed);
    if (norm) norm->backward(f.kernels.rmsnorm, d_normed, middle, inv_rms, d_normed);
    add(d_normed, d_hidden);
    mixer.backward(f.kernels, f.mixer(), d_hidden, f.workspace.mixer);
    return d_hidden;
  }
};

TEST(DecoderLayer, IsItsPartsComposedForwardAndBackward) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Fixture composed(c), whole(c);
    Parts parts(composed);
    const Matrix expected = parts.forward();
    const Matrix d_expected = parts.backward();

    DecoderLayer layer(whole.spec, whole.store);
    RouterStatistics statistics(whole.config.num_hidden_layers, whole.config.num_experts);
    Matrix hidden = Matrix::copy_of(whole.input), d_hidden = Matrix::copy_of(whole.d_output);
    layer.forward(whole.context(), nullptr, hidden, statistics);
    layer.backward(whole.context(), {}, d_hidden);
    EXPECT_TRUE(same_bits(hidden, expected));
    EXPECT_TRUE(same_bits(d_hidden, d_expected));
    EXPECT_EQ(whole.gradients(), composed.gradients());
    EXPECT_EQ(statistics.chosen().per_expert, parts.statistics.chosen().per_expert);
    EXPECT_TRUE(same_bits(layer.input(), whole.input));
  }
}

TEST(DecoderLayer, HasExpertsToLookAtOnlyWhereItIsSparse) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Fixture f(c);
    DecoderLayer layer(f.spec, f.store);
    RouterStatistics statistics(f.config.num_hidden_layers, f.config.num_experts);
    Matrix hidden = Matrix::copy_of(f.input);
    layer.forward(f.context(), nullptr, hidden, statistics);
    EXPECT_EQ(layer.moe() != nullptr, f.spec.moe.has_value());
    if (layer.moe() == nullptr) continue;
    EXPECT_EQ(layer.moe()->routing().topk_idx.size(), at(f.input.rows() * f.config.num_experts_per_tok));
    EXPECT_EQ(layer.moe()->router_logits().rows(), f.input.rows());
  }
}

TEST(DecoderLayer, WithACacheGivesWhatTheWholeSequenceGives) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Fixture f(c);
    DecoderLayer layer(f.spec, f.store);
    RouterStatistics statistics(f.config.num_hidden_layers, f.config.num_experts);
    Matrix whole = Matrix::copy_of(f.input), hidden = Matrix::copy_of(f.input);
    layer.forward(f.context(), nullptr, whole, statistics);

    MixerCache cache = layer.make_cache(kLength);
    const Index rows = f.sequences == 0 ? 0 : 1;
    for (Index position = 0; position < kLength; ++position) {
      LayerContext next = f.context();
      const std::span positions(f.positions);
      next.mixer = {rows, 1, positions.subspan(rows == 0 ? 0 : at(position), at(rows)), f.ropes};
      layer.forward(next, &cache, hidden.view().rows_from(position * rows, rows), statistics);
    }
    for (Index i = 0; i < rows * kLength * f.config.hidden_size; ++i)
      ASSERT_NEAR(hidden.view().data[i], whole.view().data[i], 1e-4 * (1 + std::abs(whole.view().data[i])));
  }
}

}  // namespace
}  // namespace moeloom
