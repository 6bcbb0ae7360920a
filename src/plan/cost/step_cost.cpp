#include "plan/cost/step_cost.hpp"

#include "train/sharded_optimizer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "cost/real.hpp"

namespace moeloom {
namespace {

constexpr double kFloatBytes = sizeof(float);
constexpr double kWord = 8;  // a count, or a double

Index sparse_layers(const ModelConfig& config) {
  Index count = 0;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) count += config.is_sparse(layer) ? 1 : 0;
  return count;
}

/// What several functions divide by: seconds of one rank where threads share processors.
struct Local {
  const MachineRates& machine;
  double slowdown;
  double elementwise(double bytes) const { return slowdown * per(bytes, machine.elementwise_bytes); }
  double dense(double flops, Index rows) const {
    return slowdown * per(flops, dense_flops_at(machine, real(rows)));
  }
};

double& of(PhaseSeconds& seconds, Phase phase) {
  return seconds[static_cast<std::size_t>(phase)];
}

/// One layer of one micro-batch, but for its experts and exchanges.
void add_layer(const LayerSpec& layer, const Job& job, const Local& local, double made,
               PhaseSeconds& seconds) {
  const Index t = job.tokens();
  of(seconds, Phase::kAttention) +=
      made * local.dense(mixer_product_flops(layer.mixer, t), t) +
      local.slowdown * per(mixing_flops(layer.mixer, t, job.batch.length), local.machine.attention_flops) +
      local.elementwise(mixer_elementwise_bytes(layer.mixer, t));
  of(seconds, Phase::kDense) += made * local.dense(mlp_product_flops(layer, t), t) +
                                local.elementwise(dense_elementwise_bytes(layer, t));
  if (layer.moe) of(seconds, Phase::kRouter) += local.slowdown * per(real(t), local.machine.router_tokens);
}

/// What a backward does once more of one layer. Forward makes a third of a mixer's products, and the first of
/// a gated MLP's or an expert's is two of the nine that both passes make.
void add_recomputed(const LayerSpec& layer, const Job& job, const Local& local, PhaseSeconds& seconds) {
  const Index t = job.tokens();
  of(seconds, Phase::kDense) += 2.0 / 9 * local.dense(mlp_product_flops(layer, t), t);
  if (job.keeping.recompute != Recompute::kBlock) return;
  of(seconds, Phase::kAttention) +=
      (local.dense(mixer_product_flops(layer.mixer, t), t) +
       local.slowdown * per(mixing_flops(layer.mixer, t, job.batch.length), local.machine.attention_flops) +
       local.elementwise(mixer_elementwise_bytes(layer.mixer, t))) /
      3;
}

/// Shares of products that are made, by the placement of their weights.
struct MadeShares {
  double dense = 1, experts = 1;
};

/// Of sums of a few words over all ranks, one after the other.
double small_sums_seconds(Index sums, const Job& job, const ExchangeRates& links) {
  const Index world = job.layout.mesh.world(), near = std::min(job.layout.ranks_per_node, world);
  return real(sums) * (real(std::bit_width(at(near - 1))) * links.node_message_seconds +
                       real(std::bit_width(at(ceil_div(world, near) - 1))) * links.network_message_seconds);
}

/// Ranks of a row of ep whose rows leave by the same link; 1 where none do.
Index sharers_of_link(const Job& job) {
  const Index near = job.layout.ep_on_node();
  return near < job.layout.mesh.ep ? near : 1;
}

void add_micro_batch(const ModelConfig& config, const Job& job, const Local& local,
                     const ExchangeRates& links, double expert_seconds, const MadeShares& made,
                     PhaseSeconds& seconds) {
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    add_layer(config.layer(layer), job, local, made.dense, seconds);
  if (job.keeping.recompute != Recompute::kNone)
    for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
      add_recomputed(config.layer(layer), job, local, seconds);
  const double sparse = real(sparse_layers(config));
  const double experts = local.slowdown * local.machine.expert_slowdown * expert_seconds;
  const ExchangeSeconds exchange = overlapped_exchange(config, job, links, experts);
  of(seconds, Phase::kDispatch) += sparse * exchange.dispatch;
  of(seconds, Phase::kCombine) +=
      sparse *
      (exchange.combine + waiting_seconds(mean_busiest_load(job), sharers_of_link(job), experts, exchange));
  of(seconds, Phase::kPlan) += sparse * plan_seconds_of_layer(config, job, local.machine, links);
  of(seconds, Phase::kExperts) += made.experts * sparse * experts;
  if (job.keeping.recompute != Recompute::kNone) {
    of(seconds, Phase::kExperts) += sparse * experts * 2 / 9;
    of(seconds, Phase::kDispatch) += sparse * exchange.dispatch / 2;  // rows go out a third time
  }
  const double stream = kFloatBytes * real(job.tokens() * config.hidden_size);
  of(seconds, Phase::kDense) += local.elementwise(5 * stream);  // the final norm both ways
  of(seconds, Phase::kEmbed) += local.elementwise(5 * stream);  // looked up, and added to the gradient
  of(seconds, Phase::kLoss) +=
      made.dense * local.slowdown * per(head_flops(config, job.tokens()), local.machine.head_flops) +
      small_sums_seconds(config.has_experts() ? 3 : 2, job, links);  // losses, targets, what routers chose
}

/// Of Muon's Newton-Schulz: three products an iteration, X X^T, its square, and that times X.
double muon_flops(const std::vector<ParameterSpec>& specs, const Job& job) {
  double flops = 0;
  for (const ParameterSpec& spec : specs) {
    if (!is_of_muon(spec, job.keeping.optimizer)) continue;
    const Index sharers = spec.placement == Placement::kWorld ? job.layout.mesh.world() : job.layout.mesh.dp;
    for (const Stretch& matrix : matrices_of(spec)) {
      const double m = real(std::min(matrix.size(), spec.cols)), n = real(std::max(matrix.size(), spec.cols));
      flops += real(spec.groups) * real(kMuonIterations) * (4 * m * m * n + 2 * m * m * m) / real(sharers);
    }
  }
  return flops;
}

constexpr std::array kProducts = {Phase::kAttention, Phase::kDense, Phase::kRouter, Phase::kExperts};

/// Products of a micro-batch, of which backward makes two of three.
double product_seconds(const PhaseSeconds& micro_batch) {
  double sum = 0;
  for (const Phase phase : kProducts) sum += micro_batch[static_cast<std::size_t>(phase)];
  return sum;
}

/// What is taken from products, where they are.
void lengthen_products(double seconds, PhaseSeconds& job) {
  const double products = product_seconds(job);
  if (products == 0) return;
  for (const Phase phase : kProducts) of(job, phase) *= 1 + seconds / products;
}

/// Seconds left of an exchange that travels while others take `beside`: what they are too short for, and at
/// least the `alone` of what nothing goes on beside.
double left_of(double exchange, double beside, double alone) {
  return std::max(exchange - beside, std::min(alone, exchange));
}

/// Dense gradients that are complete when backward ends, and weights that a forward begins with: those of
/// word tables.
Trained of_embedding(const std::vector<ParameterSpec>& specs) {
  Trained trained{.dense = 0, .experts = 0};
  for (const ParameterSpec& spec : specs)
    if (part_of_backward(spec) == kEmbeddingPart && !spec.frozen) trained.dense += spec.numbers();
  return trained;
}

void add_update(const Trained& trained, const Trained& embedding, const Job& job, const Local& local,
                const ExchangeRates& links, double products, PhaseSeconds& seconds) {
  const MeshShape& mesh = job.layout.mesh;
  const Index near_ep = job.layout.ep_on_node();
  const Index near_world = std::min(job.layout.ranks_per_node, mesh.world());
  const Index near_dp = std::max<Index>(near_world / near_ep, 1);
  const auto over = [&](const Trained& some, bool sums) {
    double seconds = 0;
    for (GroupExchange part : {GroupExchange{some.dense, mesh.world(), near_world, sums},
                               GroupExchange{some.experts, mesh.dp, near_dp, sums}}) {
      const bool halves = sums && part.group == mesh.dp && job.keeping.gradients != Storage::kFp32;
      part.crosses_once = !halves && may_cross_once(part);
      seconds += reduction_seconds(part, job, links);
    }
    return seconds;
  };
  const double owned = owned_elements(trained, mesh);
  of(seconds, Phase::kOther) +=
      local.elementwise(kFloatBytes * trained.dense);  // dense gradients start at zero
  const double update = local.slowdown * per(owned, local.machine.updated_elements);
  const double sums = over(trained, true), gathers = over(trained, false);
  const double sums_left =
      job.exchange.overlap_reduce ? left_of(sums, products * 2 / 3, over(embedding, true)) : sums;
  const double gathers_left =
      job.exchange.overlap_gather
          ? left_of(gathers, update + products / 3, std::max(over(embedding, false) - update, 0.0))
          : gathers;
  of(seconds, Phase::kReduce) += local.elementwise(kFloatBytes * owned) + sums_left;  // and the norm
  of(seconds, Phase::kOptimizer) += update + gathers_left;
  const double hidden = sums + gathers - sums_left - gathers_left;
  if (job.layout.tcp && hidden > 0)
    lengthen_products(local.slowdown * tcp_seconds(hidden * links.network_bandwidth /
                                                   static_cast<double>(job.layout.ranks_per_node)),
                      seconds);
}

/// Where each rank's chunks end, given to every other; for those who write rows there, in rows too.
double cut_bytes(const ExchangeCase& exchange, const Job& job) {
  const Index lists = job.exchange.dispatcher == DispatcherKind::kAlltoall ? 1 : 2;
  return job.exchange.chunks <= 1 ? 0 : kWord * real(lists * (job.exchange.chunks + 1) * (exchange.ep - 1));
}

/// Words that every rank gives every other: losses, what routers chose (once before the backward of a router
/// loss, once for the step), their probabilities, rows and norms.
double bookkeeping_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job) {
  const double experts = config.has_experts() ? real(config.num_experts) : 0;
  const double layers = experts > 0 ? real(config.num_hidden_layers) : 0;
  const double chosen = layers * experts + 2;
  const double a_micro_batch = 2 + chosen + (chosen + layers) + layers * (experts + 3);
  double blocks = 0;
  for (const ParameterSpec& spec : specs)
    if (!spec.frozen)
      blocks += real(spec.total_groups *
                     ceil_div(spec.rows * spec.cols / spec.groups, ShardedOptimizer::kBlockElements));
  return kWord * real(job.layout.mesh.world() - 1) *
         (real(job.batch.micro_batches) * a_micro_batch + real(sparse_layers(config)) * experts + blocks);
}

}  // namespace

double share_made(const std::vector<ParameterSpec>& specs, Placement placement) {
  const bool trains = std::ranges::any_of(specs, [&](const ParameterSpec& spec) {
    return spec.placement == placement && spec.is_matrix && !spec.frozen && !spec.adapter;
  });
  return trains || specs.empty() ? 1 : 2.0 / 3;
}

double mlp_product_flops(const LayerSpec& layer, Index tokens) {
  const Index width = layer.mlp ? layer.mlp->width : layer.moe->shared ? layer.moe->shared->width : 0;
  return 6 * real(tokens) * 3 * real(width * layer.hidden_size);
}

double head_flops(const ModelConfig& config, Index tokens) {
  return 6 * real(tokens) * real(config.vocab_size * config.hidden_size);
}

double dense_elementwise_bytes(const LayerSpec& layer, Index tokens) {
  const Index width = layer.mlp ? layer.mlp->width : layer.moe->shared ? layer.moe->shared->width : 0;
  return kFloatBytes * real(tokens) * (10 * real(layer.hidden_size) + 9 * real(width));
}

Trained trained_elements(const std::vector<ParameterSpec>& specs) {
  Trained trained;
  for (const ParameterSpec& spec : specs)
    if (!spec.frozen)
      (spec.placement == Placement::kWorld ? trained.dense : trained.experts) += real(spec.rows * spec.cols);
  return trained;
}

double owned_elements(const Trained& trained, const MeshShape& mesh) {
  return trained.dense / real(mesh.world()) + trained.experts / real(mesh.dp);
}

bool may_cross_once(const GroupExchange& r) {
  const bool subtrees = std::has_single_bit(at(r.on_node));  // which a sum's one order needs
  return r.on_node > 1 && r.group > r.on_node && (subtrees || !r.sums);
}

double reduction_seconds(const GroupExchange& r, const Job& job, const ExchangeRates& rates) {
  if (r.group == 1 || r.elements == 0) return 0;
  const double buckets = std::ceil(r.elements / real(ShardedOptimizer::kBucketElements));
  const double to_each = kFloatBytes * r.elements / real(r.group);
  const double mates = real(r.on_node - 1), elsewhere = real(r.group - r.on_node);
  ExchangeVolume volume{.node_bytes = to_each * mates,
                        .network_bytes = to_each * elsewhere,
                        .node_messages = buckets * mates,
                        .network_messages = buckets * std::min(elsewhere, 1.0),
                        .copied_bytes = r.sums ? 2 * kFloatBytes * r.elements : 0};
  if (r.crosses_once) {
    const double nodes = real(r.group / r.on_node);
    volume.node_bytes *= nodes;
    volume.node_messages *= r.sums ? nodes : 1;
    volume.network_bytes /= real(r.on_node);
    volume.copied_bytes *= 1 + 1 / real(r.on_node);
  }
  return exchange_seconds(volume, rates, job.layout.ranks_per_node);
}

double tcp_seconds(double bytes) {
  // bench/results/2026-11-25-reduce.txt: on two and on four hosts, everything but exchanges took 297 and 404
  // ms longer beside 223 and 204 MB that were hidden, each way.
  constexpr double kBytesPerSecond = 6.6e8;
  return bytes / kBytesPerSecond;
}

PhaseSeconds step_seconds(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                          const MachineRates& machine, double expert_seconds) {
  const Local local{machine, oversubscription(job)};
  const ExchangeRates links = link_rates(machine, job);
  PhaseSeconds micro_batch{};
  add_micro_batch(config, job, local, links, expert_seconds,
                  {share_made(specs, Placement::kWorld), share_made(specs, Placement::kExperts)},
                  micro_batch);
  PhaseSeconds seconds{};
  for (std::size_t i = 0; i < kPhases; ++i) seconds[i] = real(job.batch.micro_batches) * micro_batch[i];
  add_update(trained_elements(specs), of_embedding(specs), job, local, links, product_seconds(micro_batch),
             seconds);
  of(seconds, Phase::kReduce) +=
      small_sums_seconds(config.has_experts() ? 2 : 1, job, links);  // norm, scores
  of(seconds, Phase::kReport) += small_sums_seconds(1, job, links);
  if (const double flops = muon_flops(specs, job); flops > 0)
    of(seconds, Phase::kOptimizer) += local.dense(flops, kSumChunkRows);
  return seconds;
}

double total(const PhaseSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double step_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job) {
  const ExchangeCase exchange = exchange_case(config, job);
  const ExchangeVolume out = dispatch_volume(job.exchange.dispatcher, exchange),
                       back = combine_volume(job.exchange.dispatcher, exchange);
  const double rows = out.node_bytes + out.network_bytes + back.node_bytes + back.network_bytes;
  // A routing weight goes out with each row, and its gradient comes home.
  const double scalars = 2 * scalar_bytes(job.exchange.dispatcher, exchange);
  const double a_layer =
      2 * rows + scalars + planning_bytes(job.exchange.dispatcher, exchange) + cut_bytes(exchange, job);
  const Trained trained = trained_elements(specs);
  const auto both_ways = [](double elements, Index group) {
    return 2 * kFloatBytes * elements * (1 - 1 / real(group));
  };
  return real(job.batch.micro_batches * sparse_layers(config)) * a_layer +
         both_ways(trained.dense, job.layout.mesh.world()) + both_ways(trained.experts, job.layout.mesh.dp) +
         bookkeeping_bytes(config, specs, job);
}

MemoryNeed step_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                       bool packs, DType element) {
  const double even_rows = real(job.tokens() * config.num_experts_per_tok);  // in a sparse layer
  return training_memory(config, specs, job, {.at_once = std::llround(even_rows * fullest_rank_load(job))},
                         packs, element);
}

}  // namespace moeloom
