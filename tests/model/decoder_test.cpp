#include "moeloom/model/decoder.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr double kFloor = 0.01;  // of the golden data's error measure, for models

double error(std::span<const float> got, std::span<const float> expected) {
  return testing::golden_error(got, expected, kFloor);
}

struct Golden {
  std::filesystem::path folder;
  SafetensorsFile results;
  Document meta;
  explicit Golden(const std::filesystem::path& f)
      : folder(f), results(f / "golden.safetensors"), meta(Document::read(f / "meta.json")) {}

  Batch batch(const Communicator& world) const {
    const std::vector<Index>& shape = results.info("input_ids").shape;
    return testing::deal(
        results.integers("input_ids"), results.integers("labels"),
        results.has("attention_mask") ? results.integers("attention_mask") : std::vector<std::int64_t>{},
        shape[0], shape[1], world);
  }
};

/// Rows of this rank of a [B * S, cols] result, without padding, side by side with what came out.
double rows_error(const Golden& golden, const std::string& name, const Batch& batch,
                  const Communicator& world, ConstMatrixView got) {
  const std::vector<float> whole = golden.results.floats(name);
  const Index each = ceil_div(golden.results.info("input_ids").shape[0], world.size());
  const Index first =
      std::min(golden.results.info("input_ids").elements(), each * world.rank() * batch.sequence_length);
  std::vector<float> ours, theirs;
  for (Index t = 0; t < got.rows; ++t) {
    if (!batch.is_real.empty() && batch.is_real[static_cast<std::size_t>(t)] == 0) continue;
    for (Index j = 0; j < got.cols; ++j) {
      ours.push_back(got(t, j));
      theirs.push_back(whole[static_cast<std::size_t>((first + t) * got.cols + j)]);
    }
  }
  return error(ours, theirs);
}

Matrix difference(ConstMatrixView a, ConstMatrixView b) {
  Matrix d = Matrix::copy_of(a);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < a.cols; ++j) d.view()(i, j) -= b(i, j);
  return d;
}

void expect_layers(const Golden& golden, const Decoder& decoder, const Batch& batch,
                   const Communicator& world) {
  const auto& layers = decoder.layers();
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::string layer = "layers." + std::to_string(l) + ".";
    EXPECT_LE(
        rows_error(golden, "hidden_states." + std::to_string(l), batch, world, layers[l].attention().input),
        1e-5);
    EXPECT_LE(rows_error(golden, layer + "ffn_input", batch, world, layers[l].ffn_input()), 1e-5);
    if (l + 1 < layers.size()) {
      EXPECT_LE(rows_error(golden, layer + "ffn_output", batch, world,
                           difference(layers[l + 1].attention().input, layers[l].ffn_residual())),
                2e-5);
    }
    if (layers[l].moe() == nullptr) continue;
    const auto selected = golden.results.integers(layer + "selected_experts");
    const auto& chosen = layers[l].moe()->routing.topk_idx;
    const Index each = ceil_div(golden.results.info("input_ids").shape[0], world.size());
    const auto first = static_cast<std::size_t>(each * world.rank() * batch.sequence_length *
                                                decoder.config().num_experts_per_tok);
    const auto top_k = static_cast<std::size_t>(decoder.config().num_experts_per_tok);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!batch.is_real.empty() && batch.is_real[i / top_k] == 0) continue;
      EXPECT_EQ(chosen[i], selected[first + i]) << layer << i;
    }
  }
}

/// Sums over the ranks that share a parameter, in double.
void expect_gradients(const Golden& golden, const ParameterStore& store, const Mesh& mesh) {
  const SafetensorsFile grads(golden.folder / "grads.safetensors");
  std::size_t seen = 0;
  for (const Parameter& parameter : store.parameters()) {
    const Communicator& sharers = parameter.spec.placement == Placement::kWorld ? mesh.world() : mesh.dp();
    std::vector<double> sum(parameter.grad.flat().begin(), parameter.grad.flat().end());
    sharers.all_sum(sum);
    const std::vector<float> total(sum.begin(), sum.end());
    for (const HfSlice& slice : parameter.spec.slices) {
      const auto begin = static_cast<std::size_t>(slice.row_begin * parameter.spec.cols);
      const auto count = static_cast<std::size_t>(slice.rows * parameter.spec.cols);
      EXPECT_LE(error(std::span(total).subspan(begin, count), grads.floats(slice.name)), 2e-5) << slice.name;
      ++seen;
    }
  }
  if (mesh.shape().ep == 1) {
    EXPECT_EQ(seen, grads.tensors().size());
  }
}

void expect_golden(const std::filesystem::path& folder, bool fused, MeshShape shape) {
  SCOPED_TRACE(folder.filename().string() + (fused ? " fused " : " reference ") + shape.text());
  const Mesh mesh(Communicator::world(), shape);
  const Golden golden(folder);
  testing::GoldenModel model(folder, mesh, testing::kernel_table(fused));
  const Batch batch = golden.batch(mesh.world());
  EXPECT_LE(rows_error(golden, "logits", batch, mesh.world(), model.decoder.logits(batch)), 1e-5);
  expect_layers(golden, model.decoder, batch, mesh.world());

  std::int64_t targets = batch.counted_targets();
  mesh.world().all_sum(std::span(&targets, 1));
  const bool with_aux = golden.meta.boolean("aux_loss_in_loss");
  const double coefficient = with_aux ? model.config.router_aux_loss_coef : 0.0;
  const MicroBatchLosses losses =
      model.decoder.forward_backward(batch, {.lm = 1.0 / static_cast<double>(targets), .aux = coefficient});
  const double loss = losses.nll_sum / static_cast<double>(targets) + coefficient * losses.aux_loss;
  const double expected = golden.meta.number("loss");
  EXPECT_NEAR(loss, expected, 2e-6 * std::abs(expected));
  if (with_aux) {
    EXPECT_NEAR(losses.aux_loss, golden.meta.number("aux_loss"), 2e-6 * golden.meta.number("aux_loss"));
  }
  expect_gradients(golden, model.store, mesh);
}

TEST(Decoder, AgreesWithGoldenOnEveryMeshWithLoopAndGmm) {
  const Index world = Communicator::world().size();
  const auto cases = testing::golden_cases("models", testing::of_class({"Qwen3MoeForCausalLM"}));
  ASSERT_FALSE(cases.empty());
  for (const auto& folder : cases)
    for (const MeshShape& shape : testing::meshes_for(world, ModelConfig::read(folder).num_experts))
      for (const bool fused : {false, true}) expect_golden(folder, fused, shape);
}

ModelConfig tiny() {
  ModelConfig config;
  config.vocab_size = 17;
  config.hidden_size = 12;
  config.intermediate_size = 20;
  config.moe_intermediate_size = 10;
  config.num_hidden_layers = 3;
  config.mlp_only_layers = {1};
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 6;
  config.num_experts = 4;
  config.initializer_range = 0.3;
  return config;
}

std::unique_ptr<ParameterStore> make_store(const ModelConfig& config, const Mesh& mesh) {
  auto store = std::make_unique<ParameterStore>(parameter_specs(
      config, experts_of(config.num_experts, mesh.shape().ep, mesh.shape().ep_rank(mesh.world().rank()))));
  initialise(*store, config, 5);
  return store;
}

Mesh whole_ep() {
  Communicator world = Communicator::world();
  MeshShape shape;
  shape.ep = world.size();
  return Mesh(std::move(world), shape);
}

TEST(Decoder, NextLogitsWithTheCacheAreThoseOfTheWholeSequence) {
  const Mesh mesh = whole_ep();
  const ModelConfig config = tiny();
  const auto store = make_store(config, mesh);
  Decoder decoder(config, *store, mesh, testing::kernel_table(true));
  Batch batch;
  if (mesh.world().rank() == 0) {
    batch.sequences = 1;
    batch.sequence_length = 9;
    for (std::int32_t i = 0; i < 9; ++i) batch.input_ids.push_back(i * 5 % 17);
  }
  const Matrix whole = decoder.logits(batch);
  decoder.start_sequence(9);
  const std::span ids(batch.input_ids);
  const auto part = [&](std::size_t begin, std::size_t count) {
    return ids.empty() ? ids : ids.subspan(begin, count);
  };
  for (const auto& [begin, count] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 1}, {5, 1}, {6, 3}}) {
    const Matrix next = decoder.next_logits(part(begin, count));
    for (Index v = 0; v < next.view().size(); ++v)
      EXPECT_NEAR(next.view().data[v], whole.view()(static_cast<Index>(begin + count) - 1, v), 1e-5);
  }
  if (mesh.world().rank() == 0 && mesh.world().size() == 1) {
    EXPECT_THROW(decoder.next_logits(ids.subspan(0, 1)), ShapeError);
  }
}

TEST(Decoder, UsesAnotherTableFromTheNextForwardOn) {
  const Mesh mesh = whole_ep();
  const ModelConfig config = tiny();
  const auto store = make_store(config, mesh);
  Decoder decoder(config, *store, mesh, testing::kernel_table(false));
  Batch batch;
  batch.sequences = 1;
  batch.sequence_length = 4;
  batch.input_ids = {1, 2, 3, 4};
  batch.targets = {2, 3, 4, 5};
  const auto step = [&](bool fused) {
    decoder.use(testing::kernel_table(fused));
    store->restart_gradients();
    decoder.forward_backward(batch, {.lm = 1});
    return Matrix::copy_of(store->find("model.layers.0.mlp.gate.weight").grad);
  };
  const Matrix loop = step(false), grouped = step(true), loop_again = step(false);
  for (Index i = 0; i < loop.view().size(); ++i) {
    EXPECT_EQ(loop.view().data[i], loop_again.view().data[i]);
    EXPECT_NEAR(loop.view().data[i], grouped.view().data[i], 1e-4);  // sums in another order
  }
}

TEST(Decoder, NamesTheFirstLayerThatIsNotFinite) {
  const Mesh mesh = whole_ep();
  const ModelConfig config = tiny();
  const auto store = make_store(config, mesh);
  Decoder decoder(config, *store, mesh, testing::kernel_table(false));
  Batch batch;
  batch.sequences = 1;
  batch.sequence_length = 4;
  batch.input_ids = {1, 2, 3, 4};
  decoder.logits(batch);
  EXPECT_FALSE(decoder.first_non_finite_layer());
  store->find("model.layers.1.mlp.down_proj.weight").value(0, 0) = NAN;
  decoder.logits(batch);
  EXPECT_EQ(decoder.first_non_finite_layer(), 1);
}

TEST(Decoder, RefusesTokensOutsideTheVocabulary) {
  const Mesh mesh = whole_ep();
  const ModelConfig config = tiny();
  const auto store = make_store(config, mesh);
  Decoder decoder(config, *store, mesh, {});
  Batch batch;
  batch.sequences = 1;
  batch.sequence_length = 1;
  batch.input_ids = {17};
  EXPECT_THROW(decoder.logits(batch), ShapeError);
}

}  // namespace
}  // namespace moeloom
