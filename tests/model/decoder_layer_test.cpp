// A layer is its parts in order: attention with its residual, then norm, MLP or experts, perhaps a norm of
// their output, and their residual; backward the same in reverse.
#include "model/decoder_layer.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
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
  std::vector<ParameterSpec> further = {};  // parameters that `edit` names
};

constexpr Index kPart = 6;  // of per-layer embeddings

ParameterSpec further(const std::string& name, Index rows, Index cols = 1) {
  ParameterSpec spec;
  spec.name = "model.layers.0." + name;
  spec.rows = rows;
  spec.cols = cols;
  spec.is_matrix = cols > 1;
  spec.layer = 0;
  return spec;
}

NormSpec norm_named(const std::string& name, Index width) {
  return {"model.layers.0." + name, width, {.eps = 1e-5f}};
}

/// Gemma4's: an MLP beside experts, whose router reads the stream itself, then a per-layer input and a
/// factor.
Case side_by_side(const char* name, bool norm_of_sum) {
  const ModelConfig config = testing::loud_config();
  const Index d = config.hidden_size;
  Case c{name, config, 0, [](LayerSpec& spec) {
           const Index d = spec.hidden_size;
           spec.mlp =
               MlpSpec{.prefix = "model.layers.0.dense.", .hidden_size = d, .width = 10, .activation = {}};
           spec.side_by_side =
               SideBySideNorms{norm_named("one", d), norm_named("two", d), norm_named("three", d)};
           spec.feed_forward_output_norm = norm_named("four", d);
           spec.moe->router_norm = RouterNorm{norm_named("five", d), 0.2f};
           spec.moe->expert_scale = true;
           spec.moe->output_scale = 0.5f;
           spec.per_layer_input = PerLayerInputSpec{.prefix = "model.layers.0.",
                                                    .hidden_size = d,
                                                    .width = kPart,
                                                    .act = Activation::kGeluTanh,
                                                    .norm = norm_named("six", d)};
           spec.scalar = "model.layers.0.scalar";
         }};
  if (!norm_of_sum) {
    static const auto with_norm = c.edit;
    c.edit = [](LayerSpec& spec) {
      with_norm(spec);
      spec.feed_forward_output_norm = std::nullopt;
    };
  }
  c.further = {further("dense.gate_up_proj.weight", 20, d), further("dense.down_proj.weight", d, 10)};
  for (const char* norm : {"one", "two", "three", "four", "five", "six"})
    c.further.push_back(further(norm, d));
  c.further.push_back(further("mlp.gate.per_expert_scale", config.num_experts));
  c.further.push_back(further("per_layer_input_gate.weight", kPart, d));
  c.further.push_back(further("per_layer_projection.weight", d, kPart));
  c.further.push_back(further("scalar", 1));
  c.further.back().frozen = true;
  return c;
}

std::vector<Case> cases() {
  const auto scaled = [](LayerSpec& spec) { spec.residual_scale = 0.3f; };
  const auto norms_behind_alone = [](LayerSpec& spec) {
    spec.mixer_norm = spec.feed_forward_norm = std::nullopt;
  };
  const auto at_once = [](LayerSpec& spec) {
    spec.parallel = true;
    spec.feed_forward_norm = std::nullopt;
  };
  return {{"experts beside attention", testing::loud_config(), 0, at_once},
          {"MLP beside attention", testing::loud_config(), 1, at_once},
          {"experts", testing::loud_config(), 0},
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
  Matrix parts, d_parts;
  KernelTable kernels = kernel_table(true);

  explicit Fixture(const Case& c)
      : config(c.config),
        spec(config.layer(c.layer)),
        store(parameters_of(c, mesh)),
        dispatcher(mesh.ep(), config.has_experts() ? config.num_experts : mesh.ep().size()) {
    c.edit(spec);
    initialise(store, config, 5);
    for (const Parameter& p : store.parameters())
      if (p.spec.name == spec.scalar) p.value.data[0] = 0.7f;
    parts = random_matrix(sequences * kLength, kPart, 21);
    d_parts = Matrix(parts.rows(), kPart);
    store.restart_gradients();
    for (Index t = 0; t < input.rows(); ++t) positions.push_back(static_cast<std::int32_t>(t % kLength));
    for (const RopeSettings& settings : config.ropes()) ropes.push_back(make_rope_table(kLength, settings));
  }
  static std::vector<ParameterSpec> parameters_of(const Case& c, const Mesh& mesh) {
    std::vector<ParameterSpec> specs = parameter_specs(
        c.config, c.config.has_experts() ? testing::experts_here(c.config, mesh) : ExpertRange{0, 1});
    specs.insert(specs.end(), c.further.begin(), c.further.end());
    return specs;
  }
  MixerContext mixer() const { return {sequences, kLength, positions, ropes}; }
  MoeContext moe() { return {kernels, dispatcher, experts, workspace.feed_forward.moe, clock}; }
  LayerContext context() {
    return {.kernels = kernels,
            .mixer = mixer(),
            .moe = moe(),
            .workspace = workspace,
            .clock = clock,
            .per_layer = {parts, d_parts}};
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
    const auto& read = f.spec.parallel ? f.spec.mixer_norm : f.spec.feed_forward_norm;
    if (read) norm.emplace(Norm::of(f.store, *read));
    branch_output = BranchOutput::of(f.store, f.spec.feed_forward_output_norm, f.spec.residual_scale);
  }

  Matrix forward() {
    Matrix hidden = Matrix::copy_of(f.input);
    mixer.forward(f.kernels, f.mixer(), hidden);
    middle = Matrix::copy_of(f.spec.parallel ? f.input : hidden);
    normed = Matrix::copy_of(middle);
    if (norm) norm->forward(f.kernels.rmsnorm, middle, normed, inv_rms);
    const MatrixView output =
        branch_output ? branch_output->input(hidden.rows(), hidden.cols()) : hidden.view();
    if (branch_output) fill(output, 0.0f);
    if (mlp) mlp->forward(f.kernels, normed, output, f.workspace.feed_forward.mlp);
    if (moe) moe->forward(f.moe(), normed, output, statistics);
    if (branch_output) branch_output->forward(f.kernels.rmsnorm, hidden);
    return hidden;
  }

  Matrix backward() {
    Matrix d_hidden = Matrix::copy_of(f.d_output), d_output = Matrix::copy_of(f.d_output);
    Matrix d_normed(d_hidden.rows(), d_hidden.cols());
    if (branch_output) branch_output->backward(f.kernels.rmsnorm, d_hidden, d_output);
    if (mlp) mlp->backward(f.kernels, normed, d_output, d_normed, f.workspace.feed_forward.mlp);
    if (moe) moe->backward(f.moe(), normed, {}, d_output, d_normed);
    if (norm) norm->backward(f.kernels.rmsnorm, d_normed, middle, inv_rms, d_normed);
    if (!f.spec.parallel) add(d_normed, d_hidden);
    mixer.backward(f.kernels, f.mixer(), d_hidden, f.workspace.mixer);
    if (f.spec.parallel) add(d_normed, d_hidden);
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

std::vector<Case> all_cases() {
  std::vector<Case> all = cases();
  all.push_back(side_by_side("MLP beside experts", true));
  all.push_back(side_by_side("MLP beside experts without a norm of the sum", false));
  return all;
}

TEST(DecoderLayer, HasTheSameBitsWhateverBackwardMakesAgain) {
  for (const Case& c : all_cases()) {
    struct Result {
      Matrix hidden, d_hidden, d_parts;
      std::vector<float> gradients;
    };
    const auto run = [&](Recompute recompute) {
      Fixture f(c);
      DecoderLayer layer(f.spec, f.store), other(f.spec, f.store);
      RouterStatistics statistics(f.config.num_hidden_layers, f.config.num_experts);
      Matrix hidden = Matrix::copy_of(f.input), d_hidden = Matrix::copy_of(f.d_output);
      const MoeContext moe = f.moe();
      LayerContext context{.kernels = f.kernels,
                           .mixer = f.mixer(),
                           .moe = {.kernels = moe.kernels,
                                   .dispatcher = moe.dispatcher,
                                   .experts = moe.experts,
                                   .workspace = moe.workspace,
                                   .clock = moe.clock,
                                   .recompute = recompute != Recompute::kNone},
                           .workspace = f.workspace,
                           .clock = f.clock,
                           .recompute = recompute,
                           .per_layer = {f.parts, f.d_parts}};
      layer.forward(context, nullptr, hidden, statistics);
      Matrix behind = Matrix::copy_of(hidden);  // another layer uses what is shared
      other.forward(context, nullptr, behind, statistics);
      layer.backward(context, {}, d_hidden);
      return Result{std::move(hidden), std::move(d_hidden), std::move(f.d_parts), f.gradients()};
    };
    const Result kept = run(Recompute::kNone);
    for (const Recompute recompute : {Recompute::kExperts, Recompute::kBlock}) {
      SCOPED_TRACE(std::string(c.name) + ", recompute " + std::to_string(static_cast<int>(recompute)));
      const Result made_again = run(recompute);
      EXPECT_TRUE(same_bits(made_again.hidden, kept.hidden));
      EXPECT_TRUE(same_bits(made_again.d_hidden, kept.d_hidden));
      EXPECT_TRUE(same_bits(made_again.d_parts, kept.d_parts));
      EXPECT_EQ(made_again.gradients, kept.gradients);
    }
  }
}

/// Along random directions of the input, the parts and every parameter of the layer.
TEST(DecoderLayer, HasTheGradientsOfWhatItComputes) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Fixture f(c);
    DecoderLayer layer(f.spec, f.store);
    RouterStatistics statistics(f.config.num_hidden_layers, f.config.num_experts);
    std::uint64_t version = 1;
    std::vector<std::int32_t> chosen;  // constant under differentiation
    RoutedTokens tokens;
    const auto context = [&] {
      const MoeContext moe = f.moe();
      return LayerContext{.kernels = f.kernels,
                          .mixer = f.mixer(),
                          .moe = {.kernels = moe.kernels,
                                  .dispatcher = moe.dispatcher,
                                  .experts = moe.experts,
                                  .workspace = moe.workspace,
                                  .clock = moe.clock,
                                  .tokens = tokens,
                                  .weight_version = version},
                          .workspace = f.workspace,
                          .clock = f.clock,
                          .per_layer = {f.parts, f.d_parts}};
    };
    Matrix hidden = Matrix::copy_of(f.input), d_input = Matrix::copy_of(f.d_output);
    const auto loss = [&] {
      ++version;
      copy(f.input, hidden);
      layer.forward(context(), nullptr, hidden, statistics);
      double sum = 0;
      for (Index i = 0; i < f.d_output.view().size(); ++i)
        sum += static_cast<double>(hidden.view().data[i]) * static_cast<double>(f.d_output.view().data[i]);
      f.mesh.world().all_sum(std::span(&sum, 1));
      return sum;
    };
    loss();
    if (layer.moe() != nullptr) {
      chosen = layer.moe()->routing().topk_idx;
      tokens.given_topk_idx = std::span<const std::int32_t>(chosen);
    }
    layer.backward(context(), {}, d_input);
    const auto expect = [&](const std::string& what, MatrixView x, ConstMatrixView gradient) {
      const Matrix direction = random_matrix(x.rows, x.cols, 77);
      double along = 0;
      for (Index i = 0; i < x.size(); ++i)
        along += static_cast<double>(gradient.data[i]) * static_cast<double>(direction.view().data[i]);
      f.mesh.world().all_sum(std::span(&along, 1));
      const Matrix kept = Matrix::copy_of(x);
      const auto at_step = [&](double step) {
        for (Index i = 0; i < x.size(); ++i)
          x.data[i] = kept.view().data[i] + static_cast<float>(step) * direction.view().data[i];
        return loss();
      };
      const double step = 1e-3, above = at_step(step), below = at_step(-step);
      copy(kept, x);
      double scale = 0;
      for (Index i = 0; i < x.size(); ++i) scale += static_cast<double>(gradient.data[i] * gradient.data[i]);
      f.mesh.world().all_sum(std::span(&scale, 1));
      EXPECT_NEAR((above - below) / (2 * step), along, 2e-2 * (std::sqrt(scale) + 1)) << what;
    };
    expect("input", f.input, d_input);
    if (f.spec.per_layer_input) expect("part", f.parts, f.d_parts);
    for (const Parameter& p : f.store.parameters())
      if (p.spec.layer == c.layer && !p.spec.frozen) expect(p.spec.name, p.value, p.grad);
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
  for (const Case& c : all_cases()) {
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
      next.per_layer.value = f.parts.view().rows_from(position * rows, rows);
      next.mixer = {rows, 1, positions.subspan(rows == 0 ? 0 : at(position), at(rows)), f.ropes};
      layer.forward(next, &cache, hidden.view().rows_from(position * rows, rows), statistics);
    }
    for (Index i = 0; i < rows * kLength * f.config.hidden_size; ++i)
      ASSERT_NEAR(hidden.view().data[i], whole.view().data[i], 1e-4 * (1 + std::abs(whole.view().data[i])));
  }
}

}  // namespace
}  // namespace moeloom
