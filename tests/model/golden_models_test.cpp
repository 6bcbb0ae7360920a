// Every golden model of a family that runs: logits, layers, choices of experts, losses and every gradient.
#include "model/decoder.hpp"
#include "model/hf/family.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

double error(std::span<const float> got, std::span<const float> expected) {
  return testing::golden_error(got, expected, testing::kModelFloor);
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

/// Rows of this rank of the sum of [B * S, cols] results, without padding, side by side with what came out.
double sum_error(const Golden& golden, const std::vector<std::string>& names, const Batch& batch,
                 const Communicator& world, ConstMatrixView got) {
  std::vector<float> whole = golden.results.floats(names.front());
  for (std::size_t other = 1; other < names.size(); ++other) {
    const std::vector<float> more = golden.results.floats(names[other]);
    std::ranges::transform(whole, more, whole.begin(), std::plus<>());
  }
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

double rows_error(const Golden& golden, const std::string& name, const Batch& batch,
                  const Communicator& world, ConstMatrixView got) {
  return sum_error(golden, {name}, batch, world, got);
}

Matrix difference(ConstMatrixView a, ConstMatrixView b) {
  Matrix d = Matrix::copy_of(a);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < a.cols; ++j) d.view()(i, j) -= b(i, j);
  return d;
}

/// Files of routers that choose with biases or groups name experts by rising number, which means nothing.
bool by_number(const std::vector<std::int64_t>& all, std::size_t top_k) {
  for (std::size_t t = 0; t + top_k <= all.size(); t += top_k)
    if (!std::ranges::is_sorted(std::span(all).subspan(t, top_k))) return false;
  return true;
}

/// The experts of each real token, in the order of the file where that means something: by falling weight.
void expect_choices(std::vector<std::int64_t> all, const MoeLayer& moe, const Batch& batch,
                    const Communicator& world, const std::string& layer) {
  const auto& chosen = moe.routing().topk_idx;
  const auto tokens = static_cast<std::size_t>(batch.tokens());
  const std::size_t top_k = tokens == 0 ? 0 : chosen.size() / tokens;
  const bool rising = by_number(all, at(moe.routing().top_k));
  std::int64_t before = static_cast<std::int64_t>(chosen.size());
  const std::vector<std::int64_t> counts = world.all_gather(std::vector<std::int64_t>{before});
  before = std::accumulate(counts.begin(), counts.begin() + world.rank(), std::int64_t{0});
  for (std::size_t t = 0; t < tokens; ++t) {
    if (!batch.is_real.empty() && batch.is_real[t] == 0) continue;
    const auto theirs = all.begin() + before + static_cast<std::ptrdiff_t>(t * top_k);
    std::vector<std::int64_t> ours(chosen.begin() + static_cast<std::ptrdiff_t>(t * top_k),
                                   chosen.begin() + static_cast<std::ptrdiff_t>((t + 1) * top_k));
    if (rising) std::ranges::sort(ours);
    EXPECT_TRUE(std::ranges::equal(ours, std::span(theirs, theirs + static_cast<std::ptrdiff_t>(top_k))))
        << layer << " token " << t;
  }
}

/// What enters the experts or the MLP of a layer, from what entered its attention in the last forward. lent:
/// of each layer; those before it have shown their keys there.
struct FeedForwardInput {
  Matrix residual, normed;

  FeedForwardInput(const testing::GoldenModel& model, std::size_t layer, const KernelTable& kernels,
                   const Batch& batch, std::span<LentKeys> lent)
      : residual(Matrix::copy_of(model.decoder.layers()[layer].input())), normed(Matrix::copy_of(residual)) {
    const LayerSpec spec = model.config.layer(static_cast<Index>(layer));
    std::vector<std::int32_t> positions;
    for (Index t = 0; t < batch.tokens(); ++t)
      positions.push_back(static_cast<std::int32_t>(t % batch.sequence_length));
    std::vector<RopeTable> ropes;
    for (const RopeSettings& rope : model.config.ropes())
      ropes.push_back(make_rope_table(roomy_rope_positions(batch.sequence_length, rope), rope));
    MixerLayer mixer(spec.mixer, spec.mixer_norm, spec.mixer_output_norm, model.store, spec.residual_scale);
    const MixerContext context{.sequences = batch.sequences,
                               .sequence_length = batch.sequence_length,
                               .position_ids = positions,
                               .ropes = ropes,
                               .layer = static_cast<Index>(layer),
                               .lent = lent};
    mixer.forward(kernels, context, residual);
    std::vector<float> inv_rms;
    // Of halves that stand beside each other both read the layer's input.
    const Matrix read = Matrix::copy_of(spec.parallel ? model.decoder.layers()[layer].input() : residual);
    const std::optional<NormSpec>& norm = spec.parallel ? spec.mixer_norm : spec.feed_forward_norm;
    normed = Matrix::copy_of(read);
    if (norm) Norm::of(model.store, *norm).forward(kernels.rmsnorm, read, normed, inv_rms);
  }
};

/// What enters and leaves the MLP or the experts. A norm behind the block stands between its output and the
/// residual stream; a shared expert that lies beside the block has an output of its own.
void expect_feed_forward(const Golden& golden, const testing::GoldenModel& model, std::size_t l,
                         const KernelTable& kernels, const Batch& batch, const Communicator& world,
                         std::span<LentKeys> lent) {
  const LayerSpec spec = model.config.layer(static_cast<Index>(l));
  const std::string layer = "layers." + std::to_string(l) + ".";
  const FeedForwardInput input(model, l, kernels, batch, lent);
  EXPECT_LE(rows_error(golden, layer + "ffn_input", batch, world, input.normed), 1e-5);
  const auto& layers = model.decoder.layers();
  if (spec.feed_forward_output_norm || l + 1 == layers.size()) return;
  Matrix output = difference(layers[l + 1].input(), input.residual);
  for (float& value : output.view().flat()) value /= spec.residual_scale;
  if (golden.results.has(layer + "shared_output")) {
    EXPECT_LE(sum_error(golden, {layer + "ffn_output", layer + "shared_output"}, batch, world, output), 2e-5);
  } else {
    EXPECT_LE(rows_error(golden, layer + "ffn_output", batch, world, output), 2e-5);
  }
}

void expect_layers(const Golden& golden, const testing::GoldenModel& model, const KernelTable& kernels,
                   const Batch& batch, const Communicator& world) {
  const auto& layers = model.decoder.layers();
  std::vector<LentKeys> lent(layers.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::string layer = "layers." + std::to_string(l) + ".";
    EXPECT_LE(rows_error(golden, "hidden_states." + std::to_string(l), batch, world, layers[l].input()),
              1e-5);
    expect_feed_forward(golden, model, l, kernels, batch, world, lent);
    if (layers[l].moe() != nullptr)
      expect_choices(golden.results.integers(layer + "selected_experts"), *layers[l].moe(), batch, world,
                     layer);
  }
}

/// Sums over the ranks that share a parameter, in double.
void expect_gradients(const Golden& golden, const ParameterStore& store, const Mesh& mesh) {
  const SafetensorsFile grads(golden.folder / "grads.safetensors");
  std::set<std::string> seen;
  for (const Parameter& parameter : store.parameters()) {
    if (parameter.spec.frozen) continue;  // DeepSeek's correction bias
    const Communicator& sharers = parameter.spec.placement == Placement::kWorld ? mesh.world() : mesh.dp();
    std::vector<double> sum(parameter.grad.flat().begin(), parameter.grad.flat().end());
    sharers.all_sum(sum);
    const std::vector<float> total(sum.begin(), sum.end());
    for (const HfSlice& slice : parameter.spec.slices) {
      const auto begin = static_cast<std::size_t>(slice.row_begin * parameter.spec.cols);
      const auto count = static_cast<std::size_t>(slice.rows * parameter.spec.cols);
      const std::vector<float> expected = testing::slice_values(grads, slice, parameter.spec.cols);
      EXPECT_LE(error(std::span(total).subspan(begin, count), expected), 2e-5) << slice.name;
      seen.insert(slice.name);
    }
  }
  if (mesh.shape().ep == 1) {
    EXPECT_EQ(seen.size(), grads.tensors().size());
  }
}

enum class Path { kReference, kMasters, kPackedFaces };
constexpr std::array kPaths = {"reference", "fused, on masters", "fused, on packed faces"};

void expect_golden(const std::filesystem::path& folder, Path path, MeshShape shape) {
  SCOPED_TRACE(folder.filename().string() + " " + kPaths[static_cast<std::size_t>(path)] + " " +
               shape.text());
  const Mesh mesh(Communicator::world(), shape);
  const Golden golden(folder);
  const KernelTable kernels = testing::kernel_table(path != Path::kReference, path == Path::kPackedFaces);
  testing::GoldenModel model(folder, mesh, kernels);
  const Batch batch = golden.batch(mesh.world());
  EXPECT_LE(rows_error(golden, "logits", batch, mesh.world(), model.decoder.logits(batch)), 1e-5);
  expect_layers(golden, model, kernels, batch, mesh.world());

  std::int64_t targets = batch.counted_targets();
  mesh.world().all_sum(std::span(&targets, 1));
  const bool with_aux = golden.meta.boolean("aux_loss_in_loss");
  const double coefficient = with_aux ? model.config.router_aux_loss_coef : 0.0;
  MicroBatchLosses losses =
      model.decoder.forward_backward(batch, {.lm = 1.0 / static_cast<double>(targets), .aux = coefficient});
  losses.routers.sum_over(mesh.world());
  const double aux = aux_loss(losses.routers);
  const double loss = losses.nll_sum / static_cast<double>(targets) + coefficient * aux;
  const double expected = golden.meta.number("loss");
  EXPECT_NEAR(loss, expected, 2e-6 * std::abs(expected));
  if (with_aux) {
    EXPECT_NEAR(aux, golden.meta.number("aux_loss"), 2e-6 * golden.meta.number("aux_loss"));
  }
  expect_gradients(golden, model.store, mesh);
}

/// Every path of a rank alone, and on the mesh with the smallest parts of experts; between them, where only
/// the exchange differs, the path of most runs.
std::vector<Path> paths_on(const MeshShape& shape, const std::vector<MeshShape>& shapes) {
  if (shape.ep < shapes.back().ep) return {Path::kMasters};
  return {Path::kReference, Path::kMasters, Path::kPackedFaces};
}

TEST(GoldenModels, AgreeOnEveryMeshWithLoopAndGmm) {
  const Index world = Communicator::world().size();
  const auto cases = testing::golden_cases("models", testing::is_of_a_family_that_runs);
  ASSERT_FALSE(cases.empty());
  std::map<std::string, int> compared;
  for (const auto& folder : cases) {
    const ModelConfig config = ModelConfig::read(folder);
    const auto shapes = testing::meshes_for(world, std::max<Index>(config.num_experts, 1));
    for (const MeshShape& shape : shapes)
      for (const Path path : paths_on(shape, shapes)) expect_golden(folder, path, shape);
    ++compared[config.model_type];
  }
  if (Communicator::world().rank() != 0) return;
  for (const auto& [family, count] : compared)
    std::cout << "golden: GoldenModels compared " << count << " of " << family << '\n';
}

/// The loss of one forward on this rank's part, over all ranks' targets.
double loss_of(const std::filesystem::path& folder, const Mesh& mesh, const KernelTable& kernels) {
  const Golden golden(folder);
  testing::GoldenModel model(folder, mesh, kernels);
  const MicroBatchLosses losses = model.decoder.evaluate(golden.batch(mesh.world()));
  return losses.nll_sum / static_cast<double>(losses.counted_targets);
}

TEST(GoldenModels, LoseTheSameInBf16ToTwoPercent) {
  MeshShape shape;
  shape.dp = Communicator::world().size();
  const Mesh mesh(Communicator::world(), shape);
  KernelTable bf16 = testing::kernel_table(true);
  bf16.grouped_matmul = packed_bf16_grouped_matmul();
  bf16.dense = tiled_bf16_dense();
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const Document meta = Golden(folder).meta;
    const bool with_aux = meta.boolean("aux_loss_in_loss");
    const double aux =
        with_aux ? ModelConfig::read(folder).router_aux_loss_coef * meta.number("aux_loss") : 0;
    const double expected = meta.number("loss") - aux;
    const double found = loss_of(folder, mesh, bf16);
    EXPECT_NEAR(found, expected, 2e-2 * expected) << folder;
    EXPECT_NE(found, loss_of(folder, mesh, testing::kernel_table(true))) << folder << ": nothing was bf16";
  }
}

}  // namespace
}  // namespace moeloom
