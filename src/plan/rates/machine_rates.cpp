#include "plan/rates/machine_rates.hpp"

#include "comm/control_groups.hpp"
#include "model/attention/attention.hpp"
#include "model/loss.hpp"
#include "model/parts/layer_spec.hpp"
#include "moe/dispatch/dispatch_plan.hpp"
#include "moe/routing/router_losses.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/statistics.hpp"
#include "plan/rates/calibration.hpp"
#include "train/adamw.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <ranges>

#include "rates/exchange_rates.hpp"

namespace moeloom {
namespace {

constexpr Index kTokens = 1024;
// What is large is measured in part: rates are flat beyond.
constexpr Index kMostSide = 4096;    // of a dense weight
constexpr Index kMostLogits = 8192;  // columns
constexpr Index kMostHeadFloats = Index{1} << 25;
constexpr Index kMostPositions = 1024;
constexpr Index kMostQueryFloats = Index{1} << 20;
constexpr Index kUpdated = Index{1} << 22;  // with gradient and moments past any cache
constexpr Index kMovedFloats = Index{1} << 22;

Matrix random_rows(Index rows, Index cols, std::uint64_t seed) {
  Matrix m(rows, cols);
  const CounterRandom random(seed, stream_of("rates"));
  float* values = m.view().data;
  for (Index i = 0; i < m.view().size(); ++i)
    values[i] = 1e-3f * static_cast<float>(random.bits(static_cast<std::uint64_t>(i)) % 2001) - 1.0f;
  return m;
}

/// Seconds of one call: the median of rounds, as of the steps that are predicted, by the rank's own clock.
double median_seconds(double budget_seconds, const std::function<void()>& work) {
  constexpr std::size_t kFewest = 4, kMost = 400;
  work();  // caches, pages and tables
  std::vector<double> seconds;
  double spent = 0;
  while (seconds.size() < kFewest || (spent < budget_seconds && seconds.size() < kMost)) {
    const double start = rate_clock();
    work();
    seconds.push_back(rate_clock() - start);
    spent += seconds.back();
  }
  return median(seconds);
}

/// The measurements of one rank, each for an even part of the budget.
class Meter {
 public:
  Meter(const RateCase& sizes, const KernelTable& kernels, const Communicator& world, double budget_seconds)
      : sizes_(sizes), kernels_(kernels), world_(world), part_(budget_seconds / kParts) {}

  /// Flops a second of y = x w^T and both gradients, w [D, D] or a part of it.
  double dense(Index rows) const {
    struct Product {
      Matrix x, w, y, dw;
    };
    const Index d = std::min(sizes_.hidden, kMostSide);
    const Matrix dy = random_rows(rows, d, 3);
    Matrix dx(rows, d);
    std::vector<Product> products;
    for (Index i = copies_past_caches(2 * rows * d + 2 * d * d); i > 0; --i)
      products.push_back({random_rows(rows, d, 1), random_rows(d, d, 2), Matrix(rows, d), Matrix(d, d)});
    return rate(6.0 * static_cast<double>(std::ssize(products) * rows * d * d), [&] {
      for (Product& p : products) kernels_.dense.forward(p.x, p.w, p.y, Write::kReplace);
      for (Product& p : products | std::views::reverse) {
        kernels_.dense.input_grad(dy, p.w, dx, Write::kReplace);
        kernels_.dense.weight_grad(dy, p.x, p.dw, Write::kAdd);
      }
    });
  }

  /// Of causal attention: two products forward and five backward, each over S (S + 1) / 2 pairs a head.
  double attention() const {
    const Index s = std::min(sizes_.sequence_length, kMostPositions);
    const Index group = sizes_.heads / sizes_.kv_heads;
    const Index kv_heads =
        std::clamp<Index>(kMostQueryFloats / (s * group * sizes_.head_dim), 1, sizes_.kv_heads);
    const AttentionShape shape{.sequences = 1,
                               .query_length = s,
                               .key_length = s,
                               .heads = group * kv_heads,
                               .kv_heads = kv_heads,
                               .head_dim = sizes_.head_dim,
                               .value_dim = sizes_.value_dim};
    struct Layer {
      Matrix query, key, value, context, lse;
    };
    const Index q = shape.heads * shape.head_dim, k = shape.kv_heads * shape.head_dim;
    const Index v = shape.kv_heads * shape.value_dim, out = shape.heads * shape.value_dim;
    const Matrix d_context = random_rows(s, out, 6);
    Matrix dq(s, q), dk(s, k), dv(s, v);
    std::vector<Layer> layers;
    for (Index i = copies_past_caches(s * (q + k + v + out)); i > 0; --i)
      layers.push_back({random_rows(s, q, 3), random_rows(s, k, 4), random_rows(s, v, 5), Matrix(s, out),
                        Matrix(s, shape.heads)});
    const double pairs = static_cast<double>(s) * static_cast<double>(s + 1) / 2;
    const double a_pair = 2.0 * static_cast<double>(4 * q + 3 * out);
    return rate(static_cast<double>(layers.size()) * pairs * a_pair, [&] {
      for (Layer& l : layers) attention_forward(shape, {l.query, l.key, l.value}, l.context, l.lse);
      for (Layer& l : layers | std::views::reverse)
        attention_backward(shape, {l.query, l.key, l.value}, l.context, l.lse, d_context, {dq, dk, dv});
    });
  }

  double head() const {
    const Index vocabulary = std::min({sizes_.vocabulary, kMostLogits, kMostHeadFloats / sizes_.hidden});
    const Matrix hidden = random_rows(kSumChunkRows, sizes_.hidden, 7);
    const Matrix head = random_rows(vocabulary, sizes_.hidden, 8);
    Matrix d_hidden(hidden.rows(), hidden.cols()), d_head(head.rows(), head.cols());
    const std::vector<std::int32_t> targets(at(hidden.rows()), 0);
    return rate(6.0 * static_cast<double>(hidden.rows() * head.view().size()), [&] {
      head_loss_backward(kernels_.dense, hidden, {head, d_head}, targets, 1e-3f, d_hidden);
    });
  }

  /// Tokens a second through one layer's router, forward and backward.
  double router() const {
    const RouterSettings settings = softmax_router(sizes_.experts, sizes_.top_k);
    const Matrix hidden = random_rows(kTokens, sizes_.hidden, 9);
    const Matrix weight = random_rows(sizes_.experts, sizes_.hidden, 10);
    Matrix logits(kTokens, sizes_.experts), d_hidden(kTokens, sizes_.hidden);
    Matrix d_weight(sizes_.experts, sizes_.hidden);
    const std::vector<float> d_weights(at(kTokens * sizes_.top_k), 0.1f);
    Routing routing;
    RouterStatistics statistics(1, sizes_.experts);
    return rate(static_cast<double>(kTokens), [&] {
      matmul(hidden, weight, logits);
      route(logits, settings, routing);
      statistics.add(0, routing, {});
      route_backward(routing, settings, d_weights, {}, {}, logits);
      matmul_input_grad(logits, weight, d_hidden, Write::kAdd);
      matmul_weight_grad(logits, hidden, d_weight);
    });
  }

  double plan() const {
    std::vector<std::int32_t> chosen(at(kTokens * sizes_.top_k));
    for (std::size_t i = 0; i < chosen.size(); ++i)
      chosen[i] = static_cast<std::int32_t>(static_cast<Index>(i) * 7 % sizes_.experts);
    DispatchPlan plan;
    return rate(static_cast<double>(chosen.size()), [&] {
      plan_sending(chosen, sizes_.top_k, sizes_.experts, 1, plan);
      plan_receiving(plan.tokens_per_expert, plan);
    });
  }

  /// RMSNorm both ways and a sum: two reads or three, one write, as everything between products is.
  double elementwise() const {
    const Index rows = moved_rows();
    const Matrix x = random_rows(rows, sizes_.hidden, 11), dy = random_rows(rows, sizes_.hidden, 12);
    Matrix y(rows, sizes_.hidden);
    const std::vector<float> weight(at(sizes_.hidden), 1.0f);
    std::vector<float> inv_rms(at(rows)), d_weight(at(sizes_.hidden));
    return rate(8.0 * sizeof(float) * static_cast<double>(x.view().size()), [&] {
      kernels_.rmsnorm.forward(x, weight, {}, y, inv_rms);
      kernels_.rmsnorm.backward({x, weight, {}, inv_rms}, dy, y, d_weight);
      add(x, y);
    });
  }

  /// Rows gathered in another order.
  double copy() const {
    const Index rows = moved_rows();
    const Matrix from = random_rows(rows, sizes_.hidden, 13);
    Matrix to(rows, sizes_.hidden);
    return rate(2.0 * sizeof(float) * static_cast<double>(from.view().size()), [&] {
      parallel_blocks(rows, 64, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i)
          std::memcpy(to.view().row(i), from.view().row(i * 31 % rows), at(from.cols()) * sizeof(float));
      });
    });
  }

  double update() const {
    constexpr Index kBlock = 1 << 16;
    const Matrix gradient = random_rows(1, kUpdated, 14);
    Matrix w(1, kUpdated), m(1, kUpdated), v(1, kUpdated);
    const auto part = [](auto flat, Index block) { return flat.subspan(at(block * kBlock), at(kBlock)); };
    return rate(static_cast<double>(kUpdated), [&] {
      parallel_for(kUpdated / kBlock, [&](Index block) {
        adamw_update({}, {.learning_rate = 1e-4}, part(gradient.view().flat(), block),
                     part(w.view().flat(), block), part(m.view().flat(), block),
                     part(v.view().flat(), block));
      });
    });
  }

  /// The others wait while the first rank of a node computes alone, and compute then with it, in turn,
  /// because the clock of a shared machine moves. Even rows, as in the middle of what policies choose from.
  double expert_slowdown() const {
    constexpr std::size_t kPairs = 5;
    constexpr Index kRows = 128;
    const Communicator node = world_.split_by_node();
    if (sizes_.inter == 0 || world_.all_max(node.size()) == 1) return 1;
    const auto seconds_of_experts = gmm_timer(
        {.hidden = sizes_.hidden, .inter = sizes_.inter, .experts = sizes_.experts, .rows_per_expert = kRows},
        kernels_.grouped_matmul);
    std::vector<double> ratios;
    while (ratios.size() < kPairs) {
      world_.barrier();
      std::vector<double> alone = {0, 0};  // seconds, ranks
      if (node.rank() == 0) alone = {seconds_of_experts(), 1};
      world_.barrier();
      std::vector<double> together = {seconds_of_experts()};
      world_.all_sum(alone);
      world_.all_sum(together);
      ratios.push_back((together[0] / world_.size()) / (alone[0] / alone[1]));
    }
    std::ranges::nth_element(ratios, ratios.begin() + kPairs / 2);
    return std::max(1.0, ratios[kPairs / 2]);
  }

 private:
  static constexpr double kParts = 11;

  /// As many layers of so many floats as it takes that each finds the caches full of others.
  static Index copies_past_caches(Index floats) { return std::clamp<Index>(kCacheFloats / floats, 1, 64); }

  Index moved_rows() const { return std::max<Index>(kMovedFloats / sizes_.hidden, 32); }

  /// amount / seconds on the slowest rank, all of them at work at once.
  double rate(double amount, const std::function<void()>& work) const {
    world_.barrier();
    return amount / world_.all_max(median_seconds(part_, work));
  }

  const RateCase& sizes_;
  const KernelTable& kernels_;
  const Communicator& world_;
  double part_;
};

/// Of a processor's time, what a rank has that never rests, while the others do not either, over what it is
/// due of whole processors: ranks that share those are what oversubscription() counts. A quota leaves less
/// than it says where the kernel stops a group at a tick of its clock.
double processor_share(const Communicator& world) {
  constexpr double kSeconds = 1;  // ten periods of the usual quota
  const std::optional<ProcessorQuota> quota = processor_quota();
  const bool somewhere = world.all_max(quota ? 1 : 0) > 0, alone = world.all_max(threads()) <= 1;
  if (!somewhere || !alone) return 1;
  const std::vector<std::int64_t> groups =
      world.split_by_node().all_gather(std::vector<std::int64_t>{quota ? quota->group : 0});
  const double due = quota ? due_share(quota->processors, std::ranges::count(groups, quota->group)) : 1;
  const auto wall = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  world.barrier();
  const double begin = wall(), own = rate_clock();
  while (wall() - begin < kSeconds) continue;
  return std::min(1.0, -world.all_max((own - rate_clock()) / (wall() - begin) / due));
}

/// Rates of processor time -> by the wall.
void scale(MachineRates& rates, double share) {
  for (double& rate : rates.dense_flops) rate *= share;
  for (double* rate : {&rates.attention_flops, &rates.head_flops, &rates.router_tokens, &rates.plan_slots,
                       &rates.elementwise_bytes, &rates.copy_bytes, &rates.updated_elements})
    *rate *= share;
  rates.expert_slowdown /= share;
}

/// Of the first layer that has it; sizes of none where no layer has.
AttentionSpec some_attention(const ModelConfig& config) {
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.is_attention(layer)) return *config.layer(layer).attention();
  AttentionSpec none;
  none.heads = none.kv_heads = 1;
  none.head_dim = none.value_dim = 64;
  return none;
}

}  // namespace

RateCase rate_case(const ModelConfig& config, Index sequence_length) {
  const AttentionSpec attention = some_attention(config);
  return {.hidden = config.hidden_size,
          .heads = attention.heads,
          .kv_heads = attention.kv_heads,
          .head_dim = attention.head_dim,
          .value_dim = attention.value_dim,
          .sequence_length = sequence_length,
          .experts = config.has_experts() ? config.num_experts : 1,
          .top_k = config.has_experts() ? config.num_experts_per_tok : 1,
          .inter = config.has_experts() ? config.moe_intermediate_size : 0,
          .vocabulary = config.vocab_size};
}

double due_share(double processors, Index ranks) {
  return std::min(1.0, std::max(1.0, std::floor(processors)) / static_cast<double>(ranks));
}

double dense_flops_at(const MachineRates& rates, double rows) {
  if (rows <= static_cast<double>(kRateRows.front())) return rates.dense_flops.front();
  for (std::size_t i = 1; i < kRateRows.size(); ++i) {
    const auto low = static_cast<double>(kRateRows[i - 1]), high = static_cast<double>(kRateRows[i]);
    if (rows <= high)
      return std::lerp(rates.dense_flops[i - 1], rates.dense_flops[i],
                       std::log(rows / low) / std::log(high / low));
  }
  return rates.dense_flops.back();
}

MachineRates measure_machine_rates(const RateCase& sizes, const KernelTable& kernels,
                                   const Communicator& world, double budget_seconds) {
  const Meter meter(sizes, kernels, world, budget_seconds);
  MachineRates rates;
  for (std::size_t i = 0; i < kRateRows.size(); ++i) rates.dense_flops[i] = meter.dense(kRateRows[i]);
  rates.attention_flops = meter.attention();
  rates.head_flops = meter.head();
  rates.router_tokens = meter.router();
  rates.plan_slots = meter.plan();
  rates.elementwise_bytes = meter.elementwise();
  rates.copy_bytes = meter.copy();
  rates.updated_elements = meter.update();
  rates.expert_slowdown = meter.expert_slowdown();
  scale(rates, processor_share(world));
  rates.ranks = world.size();
  rates.node_ranks = static_cast<Index>(world.all_max(world.split_by_node().size()));
  measure_exchange(world, rates);
  return rates;
}

}  // namespace moeloom
