#include "model/decoder.hpp"

#include "model/loss.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

/// The row whose look-up trains nothing, as PyTorch's padding_idx; a negative one counts from the end.
Index padding_row_of(const ModelConfig& config) {
  if (!config.pad_token_id) return -1;
  return *config.pad_token_id < 0 ? *config.pad_token_id + config.vocab_size : *config.pad_token_id;
}

HeadWeights head_of(const ModelConfig& config, const ParameterStore& store) {
  const Parameter& weight =
      store.find(config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  HeadWeights head{.weight = weight.weights(),
                   .grad = weight.grad,
                   .logit_scale = static_cast<float>(1 / config.logits_scaling),
                   .logit_cap = static_cast<float>(config.logit_cap)};
  if (!config.head_bias) return head;
  const Parameter& bias = store.find("lm_head.bias");
  require(bias.value.size() == head.weight.rows(), "lm_head.bias needs one number for each word");
  head.bias = bias.value.flat();
  head.bias_grad = bias.grad.flat();
  return head;
}

/// [begin, end) of each; offsets [segments + 1], or empty where sequences are.
std::vector<std::pair<Index, Index>> segments_of(const Batch& batch, std::span<const Index> offsets) {
  std::vector<std::pair<Index, Index>> segments;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) segments.emplace_back(offsets[i], offsets[i + 1]);
  if (!offsets.empty()) return segments;
  for (Index s = 0; s < batch.sequences; ++s)
    segments.emplace_back(s * batch.sequence_length, (s + 1) * batch.sequence_length);
  return segments;
}

/// Beyond it transformers 5 turns by another rule, which goes by the length of what is read.
void check_length_of_alpha(const ModelConfig& config, Index length) {
  if (!std::holds_alternative<NtkAlphaScaling>(config.rope_scaling)) return;
  require(
      length <= config.max_position_embeddings,
      "rope: alpha holds for sequences of up to max_position_embeddings = " +
          std::to_string(config.max_position_embeddings) + " tokens, not " + std::to_string(length) +
          "; transformers drops alpha beyond. Raise max_position_embeddings in config.json to keep it, or "
          "read shorter sequences");
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, ParameterStore& store, const Mesh& mesh, KernelTable kernels,
                 const DispatcherSettings& dispatcher, const RoutingSettings& routing, const Keeping& keeping)
    : config_(config),
      store_(store),
      mesh_(mesh),
      kernels_(kernels),
      embedding_(Linear::of(store, "model.embed_tokens.weight")),
      head_(head_of(config, store)),
      final_norm_(Norm::of(store, config.final_norm())),
      balance_(routing.balance),
      row_budget_(routing.row_budget),
      keeping_(keeping),
      dispatcher_(mesh.ep(), std::max<Index>(config.num_experts, 1), dispatcher),
      experts_(dispatcher),
      rope_settings_(config.ropes()),
      ropes_(rope_settings_.size()),
      embedding_scale_(config.embedding_scale()),
      padding_row_(padding_row_of(config)),
      lent_(at(config.num_hidden_layers)) {
  if (const auto spec = config.per_layer_embedding()) per_layer_.emplace(*spec, config.pad_token_id, store);
  Index sparse = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers_.emplace_back(config.layer(layer), store, layer, routing);
    sparse_place_.push_back(config.is_sparse(layer) ? sparse++ : -1);
  }
}

void Decoder::prepare_positions(const Batch& batch, Index first) {
  const Index needed = first + batch.sequence_length;
  check_length_of_alpha(config_, needed);
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    if (ropes_[i].serves(needed)) continue;
    const RopeSettings& settings = rope_settings_[i];
    ropes_[i] = make_rope_table_of_lengths(roomy_rope_positions(needed, settings), settings);
  }
  check_segments(batch);
  segment_offsets_ = segments_behind_padding(batch);
  position_ids_.resize(at(batch.tokens()));
  rope_rows_.resize(position_ids_.size());
  const auto count = [&](std::vector<std::int32_t>& rows, Index begin, Index end, Index from) {
    std::iota(rows.begin() + begin, rows.begin() + end, static_cast<std::int32_t>(from));
  };
  for (const auto& [begin, end] : segments_of(batch, segment_offsets_)) {
    count(position_ids_, begin, end, first);
    count(rope_rows_, begin, end, first + first_rope_row(first + end - begin));
  }
}

Index Decoder::first_rope_row(Index sequence_length) const {
  if (ropes_.size() == 1) return ropes_.front().first_row(sequence_length);
  require(std::ranges::all_of(ropes_, [](const RopeTable& table) { return table.long_begin == 0; }),
          "longrope is the only rope of its model");
  return 0;
}

Index Decoder::tokens_of_leaf(const Batch& batch, bool training) const {
  const LeafSettings& leaves = store_.leaves();
  return leaves.exact() ? (training ? leaves.sequences : 1) * batch.sequence_length : 0;
}

void Decoder::set_leaves(const Batch& batch, bool training) {
  for (const Placement placement : kPlacements)
    if (ExactSums* const sums = store_.sums(placement)) sums->rows_per_leaf = tokens_of_leaf(batch, training);
}

RouterStatistics Decoder::no_statistics(const Batch& batch) const {
  return {config_.num_hidden_layers, config_.num_experts, tokens_of_leaf(batch, true)};
}

PerLayerPart Decoder::per_layer_part(Index layer, bool training) {
  if (!per_layer_) return {};
  return {per_layer_->of_layer(layer), training ? per_layer_->gradient_of(layer) : MatrixView()};
}

LayerContext Decoder::context(const Batch& batch, Index layer, bool training) {
  RoutedTokens tokens{
      .world = &mesh_.world(), .training = training, .is_real = batch.is_real, .input_ids = batch.input_ids};
  if (balance_.over == BalanceOver::kSequence) tokens.tokens_per_sequence = batch.sequence_length;
  if (!batch.given_topk_idx.empty() && sparse_place_[at(layer)] >= 0)
    tokens.given_topk_idx = batch.given_topk_idx[at(sparse_place_[at(layer)])];
  return {.kernels = kernels_,
          .mixer = {.sequences = batch.sequences,
                    .sequence_length = batch.sequence_length,
                    .position_ids = position_ids_,
                    .ropes = ropes_,
                    .segment_offsets = segment_offsets_,
                    .is_real = batch.is_real,
                    .rope_rows = rope_rows_,
                    .layer = layer,
                    .lent = lent_},
          .moe = {.kernels = kernels_,
                  .dispatcher = dispatcher_,
                  .experts = experts_,
                  .workspace = workspace_.feed_forward.moe,
                  .clock = clock_,
                  .tokens = tokens,
                  .weight_version = store_.version(),
                  .expert_gradients = store_.expert_gradients(),
                  .recompute = keeping_.recompute != Recompute::kNone,
                  .row_budget = row_budget_},
          .workspace = workspace_,
          .clock = clock_,
          .recompute = keeping_.recompute,
          .per_layer = per_layer_part(layer, training)};
}

void Decoder::embed(const Batch& batch) {
  clock_.enter(Phase::kEmbed);
  require(static_cast<Index>(batch.input_ids.size()) == batch.tokens(), "a batch needs one id a token");
  hidden_.reshape_uninitialised(batch.tokens(), config_.hidden_size);
  for (Index t = 0; t < batch.tokens(); ++t) {
    const Index id = batch.input_ids[at(t)];
    require(id >= 0 && id < config_.vocab_size, "a token id lies outside the vocabulary");
    embedding_.weights().visit([&](auto weight) {
      for (Index j = 0; j < config_.hidden_size; ++j)
        hidden_.row(t)[j] = as_float(weight(id, j)) * embedding_scale_;
    });
  }
  if (per_layer_) per_layer_->forward(kernels_, batch.input_ids, hidden_);
}

void Decoder::run_layers(const Batch& batch, bool training, RouterStatistics& statistics,
                         const PartHooks& hooks) {
  const auto needs = [&](Index part) { tell_of_part(clock_, Phase::kOptimizer, hooks.weights_needed, part); };
  if (!hooks.weights_needed) store_.require_whole();
  set_leaves(batch, training);
  prepare_positions(batch, 0);
  needs(kEmbeddingPart);
  embed(batch);
  for (Index layer = 0; layer < std::ssize(layers_); ++layer) {
    clock_.enter_layer(layer, false);
    needs(layer);
    store_.read_ahead(layer + 1);
    const auto needs_experts = [&] { needs(experts_part(layer)); };
    LayerContext layer_context = context(batch, layer, training);
    layer_context.experts_needed = Interlude(needs_experts);
    layers_[at(layer)].forward(layer_context, nullptr, hidden_, statistics);
    if (layer + 1 < std::ssize(layers_)) store_.leave(layer);  // backward begins with the last
  }
  clock_.enter_layer(-1, true);
  needs(kHeadPart);
  normalise();
}

void Decoder::normalise() {
  clock_.enter(Phase::kDense);
  final_.reshape_uninitialised(hidden_.rows(), hidden_.cols());
  final_norm_.forward(kernels_.rmsnorm, hidden_, final_, final_inv_rms_);
}

double Decoder::head_loss_of(const Batch& batch, std::optional<float> backward) {
  ExactSums* const sums = store_.sums(Placement::kWorld);
  double nll_sum = 0;
  for_each_leaf(sums, batch.tokens(), [&](Index first, Index rows) {
    const ConstMatrixView hidden = final_.view().rows_from(first, rows);
    const auto targets = std::span(batch.targets).subspan(at(first), at(rows));
    const double loss = backward ? head_loss_backward(kernels_.dense, hidden, head_, targets, *backward,
                                                      d_hidden_.view().rows_from(first, rows))
                                 : head_loss(kernels_.dense, hidden, head_, targets);
    nll_sum += sums == nullptr ? loss : rounded_leaf(loss);
    if (!backward || sums == nullptr) return;
    if (head_.grad.rows > 0) sums->take(head_.grad);
    if (!head_.bias_grad.empty()) sums->take(head_.bias_grad);
  });
  return nll_sum;
}

MicroBatchLosses Decoder::sum_over_world(double nll_sum, Index counted, RouterStatistics statistics) {
  mesh_.world().all_sum(std::span(&nll_sum, 1));
  std::int64_t targets = counted;
  mesh_.world().all_sum(std::span(&targets, 1));
  return {.nll_sum = nll_sum, .counted_targets = targets, .routers = std::move(statistics)};
}

ChosenCounts Decoder::count_chosen(const Batch& batch) {
  RouterStatistics statistics = no_statistics(batch);
  run_layers(batch, true, statistics);
  store_.leave_all();
  ChosenCounts counts = statistics.chosen();
  counts.sum_over(mesh_.world());
  return counts;
}

MicroBatchLosses Decoder::evaluate(const Batch& batch) {
  RouterStatistics statistics = no_statistics(batch);
  run_layers(batch, false, statistics);
  store_.leave_all();
  clock_.enter(Phase::kLoss);
  const double nll_sum = head_loss_of(batch, std::nullopt);
  MicroBatchLosses losses = sum_over_world(nll_sum, batch.counted_targets(), std::move(statistics));
  clock_.enter(Phase::kOther);
  return losses;
}

std::vector<double> Decoder::token_losses(const Batch& batch) {
  RouterStatistics statistics = no_statistics(batch);
  run_layers(batch, false, statistics);
  store_.leave_all();
  return head_token_losses(kernels_.dense, final_, head_, batch.targets);
}

Matrix Decoder::logits(const Batch& batch) {
  RouterStatistics statistics = no_statistics(batch);
  run_layers(batch, false, statistics);
  store_.leave_all();
  Matrix logits = Matrix::uninitialised(batch.tokens(), config_.vocab_size);
  head_logits(kernels_.dense, final_, head_, logits);
  return logits;
}

}  // namespace moeloom
