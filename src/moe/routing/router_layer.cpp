#include "moe/routing/router_layer.hpp"

#include "kernels/elementwise/soft_cap.hpp"
#include "moe/routing/selection.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "routing/hash_choice.hpp"

namespace moeloom {
namespace {

const Communicator& ranks_of(const RoutedTokens& tokens, const Communicator& alone) {
  return tokens.world == nullptr ? alone : *tokens.world;
}

Index sum_over(const Communicator& world, Index mine) {
  std::int64_t sum = mine;
  world.all_sum(std::span(&sum, 1));
  return sum;
}

/// From flags [T, E], the tokens' experts by rising number, as wide as the token with most on any rank.
void list_experts_of_tokens(const Communicator& world, std::span<const std::uint8_t> keep, Index num_experts,
                            Routing& routing) {
  const Index tokens = routing.tokens();
  Index widest = 1;
  for (Index t = 0; t < tokens; ++t) {
    const auto row = keep.subspan(at(t * num_experts), at(num_experts));
    widest = std::max<Index>(widest, std::ranges::count(row, 1));
  }
  routing.top_k = static_cast<Index>(world.all_max(static_cast<double>(widest)));
  routing.topk_idx.assign(at(tokens * routing.top_k), kNoExpert);
  for (Index t = 0; t < tokens; ++t) {
    auto slot = routing.topk_idx.begin() + t * routing.top_k;
    for (Index e = 0; e < num_experts; ++e)
      if (keep[at(t * num_experts + e)] != 0) *slot++ = static_cast<std::int32_t>(e);
  }
}

/// topk_idx from what experts choose, by scores [T, E].
void let_experts_choose(const Communicator& world, const RouterSettings& settings,
                        std::span<const std::uint8_t> is_real, Routing& routing) {
  const Index experts = settings.num_experts, tokens = routing.tokens();
  std::vector<std::int32_t> expert(at(tokens * experts));
  for (Index t = 0; t < tokens; ++t) {
    const auto row = expert.begin() + t * experts;
    if (is_real.empty() || is_real[at(t)] != 0)
      std::iota(row, row + experts, 0);
    else
      std::fill_n(row, experts, kNoExpert);
  }
  const Index real = is_real.empty() ? tokens : tokens - std::ranges::count(is_real, std::uint8_t{0});
  const Index capacity = expert_capacity(1, sum_over(world, real), settings.top_k, experts);
  const auto keep = keep_largest(world, {expert, routing.scores.view().flat(), experts}, capacity);
  list_experts_of_tokens(world, keep, experts, routing);
}

/// Padding takes no row from others, nor any itself.
void drop_beyond_capacity(const RoutedTokens& tokens, const Communicator& world,
                          const RouterSettings& settings, const RouterTraining& training, Routing& routing) {
  std::vector<std::int32_t> asking = routing.topk_idx;
  Index real = routing.tokens();
  for (std::size_t t = 0; t < tokens.is_real.size(); ++t) {
    if (tokens.is_real[t] != 0) continue;
    --real;
    std::fill_n(asking.begin() + static_cast<Index>(t) * routing.top_k, routing.top_k, kNoExpert);
  }
  const Index capacity =
      expert_capacity(training.capacity_factor, sum_over(world, real), settings.top_k, settings.num_experts);
  const Candidates slots{asking, routing.topk_weights, settings.num_experts};
  const auto keep = keep_largest(world, slots, capacity);
  routing.kept_idx = routing.topk_idx;
  for (std::size_t slot = 0; slot < keep.size(); ++slot)
    if (keep[slot] == 0) routing.kept_idx[slot] = kNoExpert;
}

template <typename Real>
void add_bias(std::span<const float> bias, BasicView<Real> logits) {
  if (bias.empty()) return;
  for (Index t = 0; t < logits.rows; ++t)
    for (Index e = 0; e < logits.cols; ++e) logits(t, e) += static_cast<Real>(bias[at(e)]);
}

RowKeys keys_of_rows(RowKeys keys, Index first, Index rows) {
  return keys.empty() ? keys : keys.subspan(at(first), at(rows));
}

}  // namespace

Index expert_capacity(double factor, Index tokens, Index top_k, Index num_experts) {
  const double even = static_cast<double>(tokens * top_k) / static_cast<double>(num_experts);
  // No expert has more rows than there are tokens, however large the factor.
  return std::max<Index>(static_cast<Index>(std::min(std::ceil(factor * even), static_cast<double>(tokens))),
                         1);
}

RouterLayer::RouterLayer(RouterWeights weights, RouterSettings settings, Index layer,
                         const RouterTraining& training, RouterDType dtype)
    : weights_(weights), settings_(settings), layer_(layer), training_(training), dtype_(dtype) {
  const auto fits = [&](std::span<const float> bias) {
    return bias.empty() || std::ssize(bias) == settings.num_experts;
  };
  require(fits(weights.bias) && fits(weights.d_bias), "a router's bias needs one number an expert, or none");
  require(fits(weights.d_expert_scale), "gradients of expert scales need one number an expert, or none");
}

template <typename Real>
void RouterLayer::choose(const RoutedTokens& tokens, BasicView<const Real> logits, Routing& routing) const {
  const Communicator alone = Communicator::self();
  const Communicator& world = ranks_of(tokens, alone);
  const bool given = tokens.given_topk_idx.has_value();
  const bool by_expert = tokens.training && training_.expert_choice && !given;
  const bool by_hash = settings_.choose_by == ChooseBy::kHash;
  if (!given && !by_expert && !by_hash) {
    route(logits, settings_, routing);
  } else {
    score(logits, settings_, routing);
    routing.top_k = settings_.top_k;
    if (given) {
      routing.topk_idx.assign(tokens.given_topk_idx->begin(), tokens.given_topk_idx->end());
      if (logits.rows > 0) routing.top_k = std::ssize(*tokens.given_topk_idx) / logits.rows;
    } else if (by_expert) {
      let_experts_choose(world, settings_, tokens.is_real, routing);
    } else {
      require(std::ssize(tokens.input_ids) == logits.rows, "a hash router needs one id a token");
      choose_by_hash(tokens.input_ids, layer_, settings_, routing.topk_idx);
    }
    weigh(logits, settings_, routing);
  }
  if (tokens.training && training_.capacity_factor > 0)
    drop_beyond_capacity(tokens, world, settings_, training_, routing);
}

void RouterLayer::forward(const RoutedTokens& tokens, ConstMatrixView hidden_states, Matrix& logits,
                          Routing& routing) {
  const ConstMatrixView x = hidden_states;
  const std::vector<std::uint64_t> keys = keys_of(x);
  logits.reshape_uninitialised(x.rows, settings_.num_experts);
  // OpenBLAS chooses its kernel by the number of rows: leaves have the same number on every mesh.
  if (dtype_ == RouterDType::kFp32) {
    for_each_leaf(weights_.sums, x.rows, [&](Index first, Index rows) {
      matmul(x.rows_from(first, rows), weights_.weight, logits.view().rows_from(first, rows));
    });
    add_adapter(x, logits, keys);
    add_bias(weights_.bias, logits.view());
    if (settings_.logit_cap > 0) soft_cap(settings_.logit_cap, logits);
    return choose<float>(tokens, logits, routing);
  }
  logits_f64_.resize(at(x.rows * settings_.num_experts));
  const BasicView<double> wide(logits_f64_.data(), x.rows, settings_.num_experts);
  for_each_leaf(weights_.sums, x.rows, [&](Index first, Index rows) {
    matmul(x.rows_from(first, rows), weights_.weight, wide.rows_from(first, rows));
  });
  if (!weights_.adapter.empty()) {
    fill(logits, 0.0f);
    add_adapter(x, logits, keys);
    for (Index i = 0; i < wide.size(); ++i) wide.data[i] += static_cast<double>(logits.view().data[i]);
  }
  add_bias(weights_.bias, wide);
  if (settings_.logit_cap > 0) soft_cap(settings_.logit_cap, wide.data, wide.size());
  std::copy(logits_f64_.begin(), logits_f64_.end(), logits.view().data);
  choose<double>(tokens, wide, routing);
}

void RouterLayer::backward(const RoutedTokens& tokens, ConstMatrixView hidden_states, const Routing& routing,
                           std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                           Matrix& logits, MatrixView d_hidden_states) {
  const bool is_capped = settings_.logit_cap > 0;
  const Matrix capped = is_capped ? Matrix::copy_of(logits) : Matrix();
  route_backward(routing, settings_, d_topk_weights, losses, tokens.is_real, logits);
  if (is_capped) soft_cap_backward(settings_.logit_cap, capped, logits);
  add_scale_grads(routing, d_topk_weights);
  const ConstMatrixView d_logits = logits;
  const std::vector<std::uint64_t> keys = keys_of(hidden_states);
  for_each_leaf(weights_.sums, d_logits.rows, [&](Index first, Index rows) {
    matmul_input_grad(d_logits.rows_from(first, rows), weights_.weight,
                      d_hidden_states.rows_from(first, rows), Write::kAdd);
  });
  add_adapter_input_grad(d_logits, d_hidden_states, keys);
  add_weight_grads(d_logits, hidden_states, keys);
}

std::vector<std::uint64_t> RouterLayer::keys_of(ConstMatrixView x) const {
  return drops_inputs(weights_.adapter) ? row_keys(x) : std::vector<std::uint64_t>();
}

/// As the products of the weight: OpenBLAS's, a leaf at a time.
void RouterLayer::add_adapter(ConstMatrixView x, MatrixView logits, RowKeys keys) const {
  for_each_leaf(weights_.sums, x.rows, [&](Index first, Index rows) {
    add_low_rank(native_dense(), weights_.adapter, x.rows_from(first, rows), logits.rows_from(first, rows),
                 keys_of_rows(keys, first, rows));
  });
}

void RouterLayer::add_adapter_input_grad(ConstMatrixView d_logits, MatrixView d_x, RowKeys keys) const {
  for_each_leaf(weights_.sums, d_logits.rows, [&](Index first, Index rows) {
    add_low_rank_input_grad(native_dense(), weights_.adapter, d_logits.rows_from(first, rows),
                            d_x.rows_from(first, rows), keys_of_rows(keys, first, rows));
  });
}

void RouterLayer::add_scale_grads(const Routing& routing, std::span<const float> d_topk_weights) const {
  const std::span<float> gradient = weights_.d_expert_scale;
  if (gradient.empty()) return;
  for_each_leaf(weights_.sums, routing.tokens(), [&](Index first, Index rows) {
    expert_scale_backward(routing, settings_, d_topk_weights, {first, first + rows}, gradient);
    if (weights_.sums != nullptr) weights_.sums->take(gradient);
  });
}

void RouterLayer::add_weight_grads(ConstMatrixView d_logits, ConstMatrixView x, RowKeys keys) const {
  add_low_rank_weight_grads(native_dense(), weights_.adapter, d_logits, x, weights_.sums, keys);
  const MatrixView d_bias(weights_.d_bias.data(), std::ssize(weights_.d_bias), 1);
  if (weights_.d_weight.rows == 0 && d_bias.rows == 0) return;
  // A bias is a weight whose input is 1.
  const std::vector<float> ones(at(d_logits.rows), 1.0f);
  const ConstMatrixView one_each(ones.data(), d_logits.rows, 1);
  for_each_leaf(weights_.sums, x.rows, [&](Index first, Index rows) {
    const auto add = [&](ConstMatrixView input, MatrixView gradient) {
      if (gradient.rows == 0) return;
      matmul_weight_grad(d_logits.rows_from(first, rows), input.rows_from(first, rows), gradient);
      if (weights_.sums != nullptr) weights_.sums->take(gradient);
    };
    add(x, weights_.d_weight);
    add(one_each, d_bias);
  });
}

}  // namespace moeloom
