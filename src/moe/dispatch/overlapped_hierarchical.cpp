#include "moeloom/moe/dispatch/overlapped_hierarchical.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>

#include "dispatch/chunk_courier.hpp"
#include "dispatch/row_copy.hpp"
#include "dispatch/row_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 16;

const HierarchicalPlan& own_of(const DispatchPlan& plan) {
  return own_of<HierarchicalPlan>(plan, "hierarchical");
}

/// The ranks of this one's node, where they are consecutive and not all there are.
Stretch near_ranks_of(const NodeMap& nodes, Index rank) {
  const std::vector<Index>& members = nodes.members[at(nodes.node_of[at(rank)])];
  const Stretch near{members.front(), members.back() + 1};
  return nodes.nodes() > 1 && near.size() == std::ssize(members) ? near : Stretch{};
}

}  // namespace

OverlappedHierarchical::OverlappedHierarchical(const Communicator& ep, Index num_experts, Index chunks,
                                               HierarchicalSettings settings)
    : ep_(&ep), chunks_(chunks), whole_(ep, num_experts, settings) {
  require(chunks >= 1, "rows travel in one chunk at least");
  near_ = near_ranks_of(settings.nodes, ep.rank());
  courier_ = std::make_unique<ChunkCourier>(ep, std::move(settings), chunks);
}
OverlappedHierarchical::OverlappedHierarchical(OverlappedHierarchical&&) noexcept = default;
OverlappedHierarchical& OverlappedHierarchical::operator=(OverlappedHierarchical&&) noexcept = default;
OverlappedHierarchical::~OverlappedHierarchical() = default;

Index OverlappedHierarchical::mailbox_bytes() {
  return NodeChunks::mailbox_bytes();
}

void OverlappedHierarchical::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  whole_.plan(topk_idx, top_k, plan);
  const GroupedRows rows = plan.grouped_rows();
  std::vector<Index> rows_per_expert;
  for (Index expert = 0; expert < rows.groups(); ++expert) rows_per_expert.push_back(rows.of_group(expert));
  // Of each rank the first expert of every chunk, then its first row, which is where the others find it.
  std::vector<std::int64_t> mine = cut_experts(rows_per_expert, chunks_);
  const std::size_t places = mine.size();
  Index expert = 0, row = 0;
  for (std::size_t place = 0; place < places; ++place) {
    while (expert < mine[place]) row += rows_per_expert[at(expert++)];
    mine.push_back(row);
  }
  const std::vector<std::int64_t> all = ep_->all_gather(std::span<const std::int64_t>(mine));
  std::vector<std::int64_t> cuts, first_rows;
  for (auto of_rank = all.begin(); of_rank != all.end(); of_rank += std::ssize(mine)) {
    const auto middle = of_rank + static_cast<std::ptrdiff_t>(places);
    cuts.insert(cuts.end(), of_rank, middle);
    first_rows.insert(first_rows.end(), middle, of_rank + std::ssize(mine));
  }
  plan_chunks(cuts, ep_->rank(), plan);
  HierarchicalPlan& own = std::get<HierarchicalPlan>(plan.own);
  own.chunks = plan_crossing_chunks(courier_->settings().nodes, courier_->routes(), ep_->rank(), own.crossing,
                                    first_rows);
}

Interlude OverlappedHierarchical::progress() const {
  return Interlude::calling<&ChunkCourier::progress>(*courier_);
}

std::int64_t OverlappedHierarchical::network_bytes() const {
  return whole_.network_bytes() + courier_->network_bytes();
}

void OverlappedHierarchical::begin(const RoundTrip& trip) {
  require(trip.plan.chunks.chunks == chunks_ && own_of(trip.plan).chunks.chunks == chunks_,
          "the hierarchical dispatcher needs a plan of as many chunks");
  courier_->send_tokens(trip);
  courier_->node().open(trip.rows, trip.results, trip.plan.rows(), trip.tokens.cols);
  if (trip.scalars_out) trip.scalars_out->rows.resize(at(trip.plan.rows()));
  write_own_node(trip);
  courier_->start_serving();
}

void OverlappedHierarchical::write_own_node(const RoundTrip& trip) const {
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

bool OverlappedHierarchical::arrived(Index chunk) {
  return courier_->arrived(chunk);
}

void OverlappedHierarchical::await(const RoundTrip& trip, Index chunk) {
  courier_->await(chunk);
  take_row_scalars(trip, trip.plan.chunks.rows_of(chunk));
}

void OverlappedHierarchical::await_near(const RoundTrip& trip) {
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

void OverlappedHierarchical::take_row_scalars(const RoundTrip& trip, Stretch rows) const {
  if (!trip.scalars_out) return;
  const std::span<const float> landed = courier_->node().row_scalars();
  std::copy(landed.begin() + rows.begin, landed.begin() + rows.end,
            trip.scalars_out->rows.begin() + rows.begin);
}

void OverlappedHierarchical::send_back(const RoundTrip& trip, Index chunk) {
  if (trip.scalars_back) {
    const Stretch rows = trip.plan.chunks.rows_of(chunk);
    const std::span<const float> made = trip.scalars_back->rows;
    std::copy(made.begin() + rows.begin, made.begin() + rows.end,
              courier_->node().result_scalars().begin() + rows.begin);
  }
  courier_->node().tell(NodeChunks::kComputed, chunk + 1);
  courier_->progress();
}

void OverlappedHierarchical::finish(const RoundTrip& trip) {
  courier_->finish();
  if (trip.one_way) return;
  sum_tokens(trip);
  if (trip.scalars_back) take_scalars(trip);
}

void OverlappedHierarchical::sum_tokens(const RoundTrip& trip) const {
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

void OverlappedHierarchical::take_scalars(const RoundTrip& trip) const {
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
