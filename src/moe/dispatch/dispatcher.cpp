#include "moe/dispatch/dispatcher.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

#include "dispatch/conservation.hpp"

namespace moeloom {
namespace {

void check_tokens(const DispatchPlan& plan, ConstMatrixView tokens) {
  require(tokens.rows == plan.tokens, "dispatch needs the plan's tokens");
}
void check_sums(const DispatchPlan& plan, ConstMatrixView sums, Index cols) {
  require(sums.rows == plan.tokens && sums.cols == cols, "combine fills the plan's tokens");
}
void check_scalars(const DispatchPlan& plan, const std::optional<ScalarsOut>& scalars) {
  require(!scalars || std::ssize(scalars->slots) == plan.slots(), "dispatch needs one number a slot");
}
void check_scalars(const DispatchPlan& plan, const std::optional<ScalarsBack>& scalars) {
  require(!scalars || std::ssize(scalars->rows) == plan.rows(), "combine needs one number a row");
}

/// One fp32 copy of each row that is another rank's.
std::int64_t bytes_for_others(std::span<const Index> rows_per_rank, int rank, Index cols) {
  const Index all = std::reduce(rows_per_rank.begin(), rows_per_rank.end(), Index{0});
  return (all - rows_per_rank[at(rank)]) * cols * static_cast<Index>(sizeof(float));
}

std::shared_ptr<NodeMemory> memory_of_node(const Communicator& ep, Index num_experts, const NodeMap& nodes) {
  const Communicator node = ep.split(static_cast<int>(nodes.node_of[at(ep.rank())]), ep.rank());
  std::shared_ptr<NodeMemory> memory;
  // A node fails as a whole and by itself, so that those which did not must hear of it.
  agree(ep, [&] {
    memory = std::make_shared<NodeMemory>(node, HierarchicalDispatch::mailbox_bytes(num_experts));
  });
  return memory;
}

/// [ep, E], each rank's `mine`; what it chose is told beside.
std::vector<std::int64_t> gathered_counts(const Communicator& ep, std::span<const std::int64_t> mine,
                                          std::span<const std::int32_t> topk_idx) {
  std::vector<std::int64_t> told(mine.begin(), mine.end());
  told.push_back(std::ssize(topk_idx) - std::ranges::count(topk_idx, kNoExpert));
  const std::vector<std::int64_t> all = ep.all_gather(std::span<const std::int64_t>(told));
  std::vector<std::int64_t> counts;
  counts.reserve(all.size());
  for (Index source = 0; source < ep.size(); ++source) {
    const auto of_source = std::span(all).subspan(at(source) * told.size(), told.size());
    check_told_in_all(source, of_source.first(mine.size()), of_source.back());
    counts.insert(counts.end(), of_source.begin(), of_source.end() - 1);
  }
  return counts;
}

}  // namespace

DispatcherSettings open_dispatcher(DispatcherKind kind, const Communicator& ep, Index num_experts,
                                   const WireSettings& wire) {
  const Index nodes = kind == DispatcherKind::kShared ? 1 : wire.pretended_nodes;
  DispatcherSettings settings{.kind = kind, .nodes = find_nodes(ep, nodes), .wire = wire};
  if (kind != DispatcherKind::kAlltoall) settings.memory = memory_of_node(ep, num_experts, settings.nodes);
  return settings;
}

DispatcherSettings open_usual_dispatcher(const Communicator& ep, Index num_experts) {
  if (find_nodes(ep).nodes() > 1) return open_dispatcher(DispatcherKind::kAlltoall, ep, num_experts);
  try {
    return open_dispatcher(DispatcherKind::kShared, ep, num_experts);
  } catch (const AgreedError&) {
    return open_dispatcher(DispatcherKind::kAlltoall, ep, num_experts);
  }
}

Dispatcher::Dispatcher(const Communicator& ep, Index num_experts, const DispatcherSettings& settings)
    : ep_(&ep),
      kind_(settings.kind),
      num_experts_(num_experts),
      whole_(settings.chunks == 0),
      rebalance_(settings.rebalance),
      node_of_(settings.nodes.nodes() > 1 ? settings.nodes.node_of : std::vector<Index>{}),
      way_(make_way(ep, num_experts, settings)) {}

Dispatcher::Way Dispatcher::make_way(const Communicator& ep, Index num_experts,
                                     const DispatcherSettings& settings) {
  const auto& [kind, memory, nodes, wire, chunks, rebalance] = settings;
  const Index parts = std::max<Index>(chunks, 1);
  if (kind == DispatcherKind::kAlltoall) return AlltoallDispatch(ep, num_experts, parts, nodes, wire.dtype);
  return HierarchicalDispatch(ep, num_experts, parts, {nodes, memory, wire.combine, wire.dtype});
}

double Dispatcher::bytes_of(const TripShape& trip) {
  if (trip.ranks == 1) return 0;
  return trip.kind == DispatcherKind::kAlltoall ? AlltoallDispatch::bytes_of(trip)
                                                : HierarchicalDispatch::bytes_of(trip);
}

DispatchTraffic Dispatcher::traffic() const {
  return {.network_bytes = std::visit([](const auto& way) { return way.network_bytes(); }, way_),
          .row_bytes = row_bytes_};
}

void Dispatcher::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  if (rebalance_) return plan_with_replicas(topk_idx, top_k, plan);
  if (plan.replicas.moves()) plan.replicas = {};
  std::visit([&](auto& way) { way.plan(topk_idx, top_k, plan); }, way_);
}

void Dispatcher::plan_with_replicas(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  std::vector<std::int64_t> mine = count_choices(topk_idx, num_experts_);
  SourceCounts counts{ep_->size(), num_experts_, gathered_counts(*ep_, mine, topk_idx)};
  plan.replicas = plan_replicas(std::move(counts), *rebalance_, node_of_);
  const SourceCounts& of_experts = plan.replicas.placement.counts();
  const auto plan_way = [&](std::span<const std::int32_t> numbers, const SourceCounts& of_numbers) {
    std::visit([&](auto& way) { way.plan(numbers, top_k, of_numbers, plan); }, way_);
  };
  if (!plan.replicas.moves()) return plan_way(topk_idx, of_experts);
  plan.replicas.served.translate(topk_idx, ep_->rank(), served_);
  plan_way(served_, plan.replicas.served.counts(of_experts));
  plan.tokens_per_expert = std::move(mine);
}

Index Dispatcher::chunks() const {
  return std::visit([](const auto& way) { return way.chunks(); }, way_);
}

void Dispatcher::begin(const RoundTrip& trip) {
  if (trip.goes_out()) check_tokens(trip.plan, trip.tokens);
  check_conserved(trip.plan, ep_->rank());
  check_scalars(trip.plan, trip.scalars_out);
  if (trip.comes_home()) check_sums(trip.plan, trip.sums, trip.cols());
  if (trip.goes_out()) row_bytes_ += bytes_for_others(trip.plan.sent_per_rank, ep_->rank(), trip.cols());
  sent_back_ = 0;
  std::visit([&](auto& way) { way.begin(trip); }, way_);
}

Stretch Dispatcher::near_ranks() const {
  if (whole_) return {};
  return std::visit([](const auto& way) { return way.near_ranks(); }, way_);
}

void Dispatcher::await_near(const RoundTrip& trip) {
  std::visit([&](auto& way) { way.await_near(trip); }, way_);
}

bool Dispatcher::arrived(Index chunk) {
  return std::visit([&](auto& way) { return way.arrived(chunk); }, way_);
}

void Dispatcher::await(const RoundTrip& trip, Index chunk) {
  std::visit([&](auto& way) { way.await(trip, chunk); }, way_);
}

void Dispatcher::send_back(const RoundTrip& trip, Index chunk) {
  require(trip.results.rows() == trip.plan.rows(), "combine needs the plan's rows");
  check_scalars(trip.plan, trip.scalars_back);
  require(chunk == sent_back_, "chunks are sent back in order, each once");
  ++sent_back_;
  std::visit([&](auto& way) { way.send_back(trip, chunk); }, way_);
}

void Dispatcher::await_all(const RoundTrip& trip) {
  for (Index chunk = 0; chunk < chunks(); ++chunk) await(trip, chunk);
}

void Dispatcher::send_all_back(const RoundTrip& trip) {
  for (Index chunk = 0; chunk < chunks(); ++chunk) send_back(trip, chunk);
}

void Dispatcher::finish(const RoundTrip& trip) {
  require(!trip.comes_home() || sent_back_ == chunks(), "a trip ends when every chunk was sent back");
  check_conserved(trip.plan, ep_->rank());
  if (trip.comes_home())
    row_bytes_ += bytes_for_others(trip.plan.received_per_rank, ep_->rank(), trip.sums.cols);
  std::visit([&](auto& way) { way.finish(trip); }, way_);
}

Interlude Dispatcher::progress() const {
  return std::visit([](const auto& way) { return way.progress(); }, way_);
}

}  // namespace moeloom
