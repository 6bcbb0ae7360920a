#include "moe/dispatch/hierarchical_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

#include "dispatch/chunk_courier.hpp"
#include "dispatch/row_copy.hpp"
#include "dispatch/row_sum.hpp"
#include "dispatch/slot_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 16;

const HierarchicalPlan& own_of(const DispatchPlan& plan) {
  return own_of<HierarchicalPlan>(plan, "hierarchical");
}

const std::vector<Index>& members_beside(const NodeMap& nodes, Index rank) {
  return nodes.members[at(nodes.node_of[at(rank)])];
}

/// The ranks of this one's node, where they are consecutive and not all there are.
Stretch near_ranks_of(const NodeMap& nodes, Index rank) {
  const std::vector<Index>& members = members_beside(nodes, rank);
  const Stretch near{members.front(), members.back() + 1};
  return nodes.nodes() > 1 && near.size() == std::ssize(members) ? near : Stretch{};
}

}  // namespace

HierarchicalDispatch::HierarchicalDispatch(const Communicator& ep, Index num_experts, Index chunks,
                                           HierarchicalSettings settings)
    : ep_(&ep), num_experts_(num_experts), chunks_(chunks) {
  require(chunks >= 1, "rows travel in one chunk at least");
  require(std::ssize(settings.nodes.node_of) == ep.size() && settings.memory != nullptr &&
              settings.memory->size() == std::ssize(members_beside(settings.nodes, ep.rank())) &&
              settings.memory->rank() == settings.nodes.member_of[at(ep.rank())],
          "the hierarchical dispatcher needs the nodes of ep and the memory of this one");
  require(std::ssize(settings.memory->outbox()) >= mailbox_bytes(num_experts),
          "the node memory's mailbox has no room for the counts of every expert");
  near_ = near_ranks_of(settings.nodes, ep.rank());
  courier_ = std::make_unique<ChunkCourier>(ep, std::move(settings), chunks);
}
HierarchicalDispatch::HierarchicalDispatch(HierarchicalDispatch&&) noexcept = default;
HierarchicalDispatch& HierarchicalDispatch::operator=(HierarchicalDispatch&&) noexcept = default;
HierarchicalDispatch::~HierarchicalDispatch() = default;

Index HierarchicalDispatch::mailbox_bytes(Index num_experts) {
  return std::max<Index>((num_experts + 1) * static_cast<Index>(sizeof(std::int64_t)),
                         NodeChunks::mailbox_bytes());
}

bool HierarchicalDispatch::crosses() const {
  return courier_->settings().nodes.nodes() > 1;
}

Interlude HierarchicalDispatch::progress() const {
  return Interlude::calling<&ChunkCourier::progress>(*courier_);
}

std::int64_t HierarchicalDispatch::network_bytes() const {
  return planning_bytes_ + courier_->network_bytes();
}

void HierarchicalDispatch::begin(const RoundTrip& trip) {
  require(trip.plan.chunks.chunks == chunks_ && own_of(trip.plan).chunks.chunks == chunks_,
          "the hierarchical dispatcher needs a plan of as many chunks");
  courier_->send_tokens(trip);
  courier_->node().open(trip.rows, trip.results, trip.plan.rows(), trip.cols());
  if (trip.scalars_out) trip.scalars_out->rows.resize(at(trip.plan.rows()));
  if (trip.goes_out()) write_own_node(trip);
  courier_->start_serving();
}

void HierarchicalDispatch::write_own_node(const RoundTrip& trip) const {
  const DispatchPlan& plan = trip.plan;
  const NodeMap& nodes = courier_->settings().nodes;
  const std::vector<Landing>& landings = own_of(plan).landings;
  const Index cols = trip.tokens.cols;
  const RowWriter write(plan.places(), cols);
  parallel_blocks(plan.tokens, kTokensPerTask, [&](Index begin, Index end) {
    for (Index slot = begin * plan.top_k; slot < end * plan.top_k; ++slot) {
      const Landing& to = landings[at(slot)];
      if (!to.exists() || !nodes.same_node(to.rank, ep_->rank())) continue;
      const NodeChunks::Member& member = courier_->node().member(nodes.member_of[at(to.rank)]);
      write(trip.tokens.row(slot / plan.top_k), member.rows + to.row * cols);
      if (trip.scalars_out) member.row_scalars[to.row] = trip.scalars_out->slots[at(slot)];
    }
    write.finish();
  });
}

bool HierarchicalDispatch::arrived(Index chunk) {
  return courier_->arrived(chunk);
}

void HierarchicalDispatch::await(const RoundTrip& trip, Index chunk) {
  courier_->await(chunk);
  take_row_scalars(trip, trip.plan.chunks.rows_of(chunk));
}

void HierarchicalDispatch::await_near(const RoundTrip& trip) {
  courier_->await_own_node();
  const GroupedRows rows = trip.plan.grouped_rows();
  Index row = 0;
  for (Index expert = 0; expert < rows.groups(); ++expert)
    for (Index source = 0; source < rows.sources; ++source) {
      const Stretch those{row, row + rows.of_source(expert, source)};
      if (near_.begin <= source && source < near_.end) take_row_scalars(trip, those);
      row = those.end;
    }
}

void HierarchicalDispatch::take_row_scalars(const RoundTrip& trip, Stretch rows) const {
  if (!trip.scalars_out) return;
  const std::span<const float> landed = courier_->node().row_scalars();
  std::copy(landed.begin() + rows.begin, landed.begin() + rows.end,
            trip.scalars_out->rows.begin() + rows.begin);
}

void HierarchicalDispatch::send_back(const RoundTrip& trip, Index chunk) {
  require(trip.results.memory() == &courier_->node().memory(),
          "combine needs rows that the same dispatcher prepared");
  if (trip.scalars_back) {
    const Stretch rows = trip.plan.chunks.rows_of(chunk);
    const std::span<const float> made = trip.scalars_back->rows;
    std::copy(made.begin() + rows.begin, made.begin() + rows.end,
              courier_->node().result_scalars().begin() + rows.begin);
  }
  courier_->node().tell(NodeChunks::kComputed, chunk + 1);
  courier_->serve();
}

void HierarchicalDispatch::finish(const RoundTrip& trip) {
  courier_->finish();
  if (!trip.comes_home()) return;
  sum_tokens(trip);
  if (trip.scalars_back) take_scalars(trip);
}

void HierarchicalDispatch::sum_tokens(const RoundTrip& trip) const {
  if (!crosses()) return sum_own_node(trip);
  const CrossingPlan& crossing = own_of(trip.plan).crossing;
  const Index cols = trip.sums.cols, members = courier_->node().memory().size();
  std::vector<Index> first_sums = {0};  // of each route
  for (const CrossingCounts& route : crossing.leaving) first_sums.push_back(first_sums.back() + route.sums);
  const auto find = [&](const Summand& summand) {
    return summand.source < members ? courier_->node().member(summand.source).results + summand.row * cols
                                    : courier_->sum(first_sums[at(summand.source - members)] + summand.row);
  };
  parallel_blocks(trip.plan.tokens, kTokensPerTask, [&](Index begin, Index end) {
    std::vector<const float*> rows;
    for (Index t = begin; t < end; ++t) {
      rows.clear();
      for (Index i = crossing.summand_offsets[at(t)]; i < crossing.summand_offsets[at(t + 1)]; ++i)
        rows.push_back(find(crossing.summands[at(i)]));
      sum_rows(
          std::ssize(rows), cols, [&](Index k) { return rows[at(k)]; }, trip.sums.row(t), trip.mode);
    }
  });
}

void HierarchicalDispatch::sum_own_node(const RoundTrip& trip) const {
  const std::vector<Landing>& landings = own_of(trip.plan).landings;
  const auto row_of = [&](Index slot) {
    const Landing& from = landings[at(slot)];
    return courier_->node().member(from.rank).results + from.row * trip.sums.cols;
  };
  sum_slots(trip.plan, kTokensPerTask, row_of, trip.sums, trip.mode);
}

void HierarchicalDispatch::take_scalars(const RoundTrip& trip) const {
  const NodeMap& nodes = courier_->settings().nodes;
  const std::vector<Landing>& landings = own_of(trip.plan).landings;
  std::vector<float>& slots = trip.scalars_back->slots;
  slots.resize(at(trip.plan.slots()));
  for (Index slot = 0; slot < trip.plan.slots(); ++slot) {
    const Landing& from = landings[at(slot)];
    if (!from.exists())
      slots[at(slot)] = 0;
    else if (nodes.same_node(from.rank, ep_->rank()))
      slots[at(slot)] = courier_->node().member(nodes.member_of[at(from.rank)]).result_scalars[from.row];
  }
  courier_->take_scalars(slots);
}

}  // namespace moeloom
