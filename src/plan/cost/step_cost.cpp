#include "moeloom/plan/cost/step_cost.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/model/layer_spec.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace moeloom {
namespace {

constexpr double kFloatBytes = sizeof(float);
constexpr double kWord = 8;  // a count, or a double
constexpr double kUnmeasuredMessageSeconds = 1e-6;

double real(Index n) {
  return static_cast<double>(n);
}

double per(double amount, double rate) {
  return amount == 0 ? 0 : amount / rate;
}

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
void add_layer(const LayerSpec& layer, const StepCase& step, const Local& local, PhaseSeconds& seconds) {
  const Index t = step.tokens;
  of(seconds, Phase::kAttention) +=
      local.dense(attention_product_flops(layer, t), t) +
      local.slowdown *
          per(score_flops(layer.attention, t, step.sequence_length), local.machine.attention_flops) +
      local.elementwise(attention_elementwise_bytes(layer, t));
  of(seconds, Phase::kDense) +=
      local.dense(mlp_product_flops(layer, t), t) + local.elementwise(dense_elementwise_bytes(layer, t));
  if (layer.moe) of(seconds, Phase::kRouter) += local.slowdown * per(real(t), local.machine.router_tokens);
}

void add_micro_batch(const ModelConfig& config, const StepCase& step, const Local& local,
                     const ExchangeRates& links, double expert_seconds, PhaseSeconds& seconds) {
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    add_layer(config.layer(layer), step, local, seconds);
  const double sparse = real(sparse_layers(config));
  const double experts = local.slowdown * local.machine.expert_slowdown * expert_seconds;
  const ExchangeSeconds exchange = overlapped_exchange(config, step, links, experts);
  of(seconds, Phase::kDispatch) += sparse * exchange.dispatch;
  of(seconds, Phase::kCombine) +=
      sparse * (exchange.combine + waiting_seconds(mean_busiest_load(step), experts, exchange));
  of(seconds, Phase::kPlan) += sparse * plan_seconds_of_layer(config, step, local.machine, links);
  of(seconds, Phase::kExperts) += sparse * experts;
  const double stream = kFloatBytes * real(step.tokens * config.hidden_size);
  of(seconds, Phase::kDense) += local.elementwise(5 * stream);  // the final norm both ways
  of(seconds, Phase::kEmbed) += local.elementwise(5 * stream);  // looked up, and added to the gradient
  of(seconds, Phase::kLoss) +=
      local.slowdown * per(head_flops(config, step.tokens), local.machine.head_flops);
}

void add_update(const Trained& trained, const StepCase& step, const Local& local, const ExchangeRates& links,
                PhaseSeconds& seconds) {
  const MeshShape& mesh = step.mesh;
  const Index near_ep = ep_on_node(step);
  const Index near_world = std::min(step.ranks_per_node, mesh.world());
  const Index near_dp = std::max<Index>(near_world / near_ep, 1);
  const auto over = [&](bool sums) {
    return reduction_seconds(trained.dense, mesh.world(), near_world, step, links, sums) +
           reduction_seconds(trained.experts, mesh.dp, near_dp, step, links, sums);
  };
  const double owned = owned_elements(trained, mesh);
  of(seconds, Phase::kOther) +=
      local.elementwise(kFloatBytes * trained.dense);  // dense gradients start at zero
  of(seconds, Phase::kReduce) += over(true) + local.elementwise(kFloatBytes * owned);  // and their norm
  of(seconds, Phase::kOptimizer) += over(false) + local.slowdown * per(owned, local.machine.updated_elements);
}

/// MPI_Allgather of a few words, whichever algorithm Open MPI takes for them (recursive doubling, Bruck).
Index rounds_of_cuts(const ExchangeCase& exchange, Index chunks) {
  if (chunks == 0 || exchange.ep == exchange.ep_on_node) return 0;
  return std::bit_width(at(exchange.ep - 1));
}

/// Where each rank's chunks end, given to every other.
double cut_bytes(const ExchangeCase& exchange, Index chunks) {
  return chunks == 0 ? 0 : kWord * real((chunks + 1) * (exchange.ep - 1));
}

/// Words that every rank gives every other: sums of the router's statistics, losses, rows and norms.
double bookkeeping_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                         const StepCase& step) {
  const double experts = config.has_experts() ? real(config.num_experts) : 0;
  const double a_micro_batch = 2 * (experts + 1) + 2;
  double blocks = 0;
  for (const ParameterSpec& spec : specs)
    if (!spec.frozen)
      blocks += real(spec.total_groups *
                     ceil_div(spec.rows * spec.cols / spec.groups, ShardedOptimizer::kBlockElements));
  return kWord * real(step.mesh.world() - 1) *
         (real(step.micro_batches) * a_micro_batch + real(sparse_layers(config)) * experts + blocks);
}

}  // namespace

double oversubscription(const StepCase& step) {
  return std::max(1.0, real(step.ranks_per_node * step.threads) / real(step.processors_per_node));
}

Index ep_on_node(const StepCase& step) {
  const MeshShape& mesh = step.mesh;
  const Index apart = mesh.order.back() == "ep" ? 1 : mesh.dp;
  // A row that begins in the middle of a node lies on more nodes: then as the worst of them.
  return std::gcd(mesh.ep, std::max<Index>(step.ranks_per_node / apart, 1));
}

ExchangeCase exchange_case(const ModelConfig& config, const StepCase& step) {
  return {.tokens = step.tokens,
          .hidden = config.hidden_size,
          .top_k = config.num_experts_per_tok,
          .num_experts = std::max<Index>(config.num_experts, 1),
          .ep = step.mesh.ep,
          .ep_on_node = ep_on_node(step),
          .combine = step.combine,
          .wire = step.wire};
}

std::vector<double> rows_with_fullest(Index num_experts, double fullest) {
  const double rest = num_experts == 1 ? 1 : (real(num_experts) - fullest) / real(num_experts - 1);
  std::vector<double> rows(at(num_experts), rest);
  if (num_experts > 1) rows.front() = fullest;
  return rows;
}

std::vector<double> rank_loads(std::span<const double> expert_rows, Index ep) {
  std::vector<double> loads(at(ep), 1.0);
  const double all = std::accumulate(expert_rows.begin(), expert_rows.end(), 0.0);
  for (Index rank = 0; rank < ep && all > 0; ++rank) {
    const ExpertRange mine = experts_of(std::ssize(expert_rows), ep, rank);
    const auto rows = expert_rows.subspan(at(mine.begin), at(mine.count));
    loads[at(rank)] = std::accumulate(rows.begin(), rows.end(), 0.0) * real(ep) / all;
  }
  return loads;
}

double busiest_load(const StepCase& step, std::span<const double> expert_rows) {
  const std::vector<double> loads = rank_loads(expert_rows, step.mesh.ep);
  const Index world = step.mesh.world();
  const Index on_node = std::min(step.ranks_per_node, world);
  const Index own = std::clamp<Index>(step.processors_per_node / step.threads, 1, on_node);
  double busiest = 0;
  for (Index first = 0; first < world; first += on_node)
    for (Index processor = 0; processor < own; ++processor) {
      double sum = 0;
      for (Index rank = processor; rank < on_node && first + rank < world; rank += own)
        sum += loads[at(step.mesh.ep_rank(first + rank))];
      busiest = std::max(busiest, sum);
    }
  return std::max(1.0, busiest / real(ceil_div(on_node, own)));
}

double mean_busiest_load(const StepCase& step) {
  if (step.expert_rows.empty()) return 1;
  double sum = 0;
  for (const std::vector<double>& rows : step.expert_rows) sum += busiest_load(step, rows);
  return sum / real(std::ssize(step.expert_rows));
}

double fullest_rank_load(const StepCase& step) {
  if (step.expert_rows.empty()) return 1;
  std::vector<double> sums(at(step.mesh.ep));
  for (const std::vector<double>& rows : step.expert_rows) {
    const std::vector<double> loads = rank_loads(rows, step.mesh.ep);
    for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += loads[rank];
  }
  return std::ranges::max(sums) / real(std::ssize(step.expert_rows));
}

double attention_product_flops(const LayerSpec& layer, Index tokens) {
  const AttentionSpec& spec = layer.attention;
  double weights = real(spec.output_width() * spec.hidden_size);
  if (spec.latent) {
    const LatentSpec& latent = *spec.latent;
    const Index up_from = latent.q_rank > 0 ? latent.q_rank : spec.hidden_size;
    weights += real(up_from * spec.query_width()) + real(latent.q_rank * spec.hidden_size) +
               real(spec.hidden_size * (latent.kv_rank + latent.rope_dim)) +
               real(latent.kv_rank * spec.heads * (latent.nope_dim + spec.value_dim));
  } else {
    weights += real(spec.hidden_size * (spec.query_width() + spec.key_width() + spec.value_width()));
  }
  return 6 * real(tokens) * weights;
}

double mlp_product_flops(const LayerSpec& layer, Index tokens) {
  const Index width = layer.mlp ? layer.mlp->width : layer.moe->shared ? layer.moe->shared->width : 0;
  return 6 * real(tokens) * 3 * real(width * layer.attention.hidden_size);
}

double score_flops(const AttentionSpec& attention, Index tokens, Index sequence_length) {
  const bool windowed = attention.window > 0 && attention.window < sequence_length;
  const double keys = windowed ? real(attention.window) : real(sequence_length + 1) / 2;
  const double a_pair =
      8 * real(attention.query_width()) + 6 * real(attention.output_width());  // of all heads
  return real(tokens) * keys * a_pair;
}

double head_flops(const ModelConfig& config, Index tokens) {
  return 6 * real(tokens) * real(config.vocab_size * config.hidden_size);
}

double attention_elementwise_bytes(const LayerSpec& layer, Index tokens) {
  const AttentionSpec& spec = layer.attention;
  const double turned = spec.qk_norm == QkNorm::kNone ? 4 : 9;
  return kFloatBytes * real(tokens) *
         (10 * real(spec.hidden_size) + turned * real(spec.query_width() + spec.key_width()));
}

double dense_elementwise_bytes(const LayerSpec& layer, Index tokens) {
  const Index width = layer.mlp ? layer.mlp->width : layer.moe->shared ? layer.moe->shared->width : 0;
  return kFloatBytes * real(tokens) * (10 * real(layer.attention.hidden_size) + 9 * real(width));
}

ExchangeSeconds exchange_seconds_of_layer(const ModelConfig& config, const StepCase& step,
                                          const ExchangeRates& rates) {
  const ExchangeCase exchange = exchange_case(config, step);
  const auto both_passes = [&](const ExchangeVolume& volume) {
    return 2 * exchange_seconds(volume, rates, step.ranks_per_node);
  };
  return {both_passes(dispatch_volume(step.way, exchange)), both_passes(combine_volume(step.way, exchange))};
}

double exposed_seconds(double wire, double products, Index chunks) {
  const double share = 1 / real(chunks);
  return std::max(wire * share, wire - (1 - share) * products);
}

ExchangeSeconds overlapped_exchange(const ModelConfig& config, const StepCase& step,
                                    const ExchangeRates& rates, double expert_seconds) {
  const ExchangeCase exchange = exchange_case(config, step);
  if (step.chunks == 0 || exchange.ep == exchange.ep_on_node)
    return exchange_seconds_of_layer(config, step, rates);
  require(rates.network_bandwidth > 0, "rows that leave a node need a bandwidth between nodes");
  ExchangeRates only = rates;
  only.network_message_seconds = 0;
  const ExchangeSeconds bytes = exchange_seconds_of_layer(config, step, only);
  only.network_bandwidth = std::numeric_limits<double>::infinity();
  const ExchangeSeconds copies = exchange_seconds_of_layer(config, step, only);
  const double wire = bytes.dispatch + bytes.combine - copies.dispatch - copies.combine;  // of both passes
  const double exposed = exposed_seconds(wire / 2, expert_seconds / 3, step.chunks) +
                         exposed_seconds(wire / 2, 2 * expert_seconds / 3, step.chunks);
  const double left = per(exposed, wire), answers = 2 * rates.network_message_seconds;
  return {std::lerp(copies.dispatch, bytes.dispatch, left) + answers,
          std::lerp(copies.combine, bytes.combine, left) + answers};
}

double waiting_seconds(double busiest, double expert_seconds, const ExchangeSeconds& exchange) {
  return (busiest - 1) * (expert_seconds + (exchange.dispatch + exchange.combine) / 2);
}

double plan_seconds_of_layer(const ModelConfig& config, const StepCase& step, const MachineRates& machine,
                             const ExchangeRates& rates) {
  const ExchangeCase exchange = exchange_case(config, step);
  const double slots = real(step.tokens * config.num_experts_per_tok);
  const double sorted = oversubscription(step) * per(slots, machine.plan_slots);
  if (step.way == DispatcherKind::kShared) return sorted + rates.meeting_seconds;
  constexpr Index kFewestOfBruck = 16;  // ranks
  const Index rounds = exchange.ep == exchange.ep_on_node ? 0
                       : exchange.ep < kFewestOfBruck     ? 1
                                                          : std::bit_width(at(exchange.ep - 1));
  return sorted + real(exchange.ep_on_node - 1) * rates.node_message_seconds +
         real(rounds + rounds_of_cuts(exchange, step.chunks)) * rates.network_message_seconds;
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

double reduction_seconds(double elements, Index group, Index group_on_node, const StepCase& step,
                         const ExchangeRates& rates, bool sums) {
  if (group == 1 || elements == 0) return 0;
  const double buckets = std::ceil(elements / real(ShardedOptimizer::kBucketElements));
  const double to_each = kFloatBytes * elements / real(group);
  const double elsewhere = real(group - group_on_node);
  const ExchangeVolume volume{.node_bytes = to_each * real(group_on_node - 1),
                              .network_bytes = to_each * elsewhere,
                              .node_messages = buckets * real(group_on_node - 1),
                              .network_messages = buckets * (sums ? std::min(elsewhere, 1.0) : elsewhere),
                              .copied_bytes = sums ? 2 * kFloatBytes * elements : 0};
  return exchange_seconds(volume, rates, step.ranks_per_node);
}

ExchangeRates link_rates(const MachineRates& machine, const StepCase& step) {
  const double slowdown = oversubscription(step);
  const auto seconds = [](double measured) { return measured > 0 ? measured : kUnmeasuredMessageSeconds; };
  return {
      .node_message_seconds = seconds(machine.node_message_seconds) * slowdown,
      .node_bandwidth = (machine.measured_node() ? machine.node_bytes : machine.copy_bytes / 2) / slowdown,
      .network_message_seconds = machine.network_message_seconds,
      .network_bandwidth = machine.network_bytes,
      .copy_bandwidth = machine.copy_bytes / slowdown,
      .meeting_seconds = seconds(machine.meeting_seconds) * slowdown};
}

PhaseSeconds step_seconds(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                          const StepCase& step, const MachineRates& machine, double expert_seconds) {
  const Local local{machine, oversubscription(step)};
  const ExchangeRates links = link_rates(machine, step);
  PhaseSeconds micro_batch{};
  add_micro_batch(config, step, local, links, expert_seconds, micro_batch);
  PhaseSeconds seconds{};
  for (std::size_t i = 0; i < kPhases; ++i) seconds[i] = real(step.micro_batches) * micro_batch[i];
  add_update(trained_elements(specs), step, local, links, seconds);
  return seconds;
}

double total(const PhaseSeconds& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double step_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const StepCase& step) {
  const ExchangeCase exchange = exchange_case(config, step);
  const ExchangeVolume out = dispatch_volume(step.way, exchange), back = combine_volume(step.way, exchange);
  const double rows = out.node_bytes + out.network_bytes + back.node_bytes + back.network_bytes;
  // A routing weight goes out with each row and its gradient comes home; in chunks every row has a number
  // beside it, both ways.
  const double scalars = (step.chunks > 0 ? 4 : 2) * scalar_bytes(step.way, exchange);
  const double a_layer =
      2 * rows + scalars + planning_bytes(step.way, exchange) + cut_bytes(exchange, step.chunks);
  const Trained trained = trained_elements(specs);
  const auto both_ways = [](double elements, Index group) {
    return 2 * kFloatBytes * elements * (1 - 1 / real(group));
  };
  return real(step.micro_batches * sparse_layers(config)) * a_layer +
         both_ways(trained.dense, step.mesh.world()) + both_ways(trained.experts, step.mesh.dp) +
         bookkeeping_bytes(config, specs, step);
}

MemoryNeed step_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                       const StepCase& step, bool packs, DType element) {
  const double even_rows = real(step.tokens * config.num_experts_per_tok);  // in a sparse layer
  return training_memory(config, specs, step.mesh, step.way,
                         {.tokens = step.tokens,
                          .sequence_length = step.sequence_length,
                          .rows = std::llround(even_rows * fullest_rank_load(step)),
                          .in_chunks = step.chunks > 0,
                          .threads = step.threads},
                         packs, element);
}

}  // namespace moeloom
