#include "moe/dispatch/alltoall_dispatch.hpp"

#include "moe/dispatch/dispatch_traffic.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstring>

#include "dispatch/count_exchange.hpp"
#include "dispatch/slot_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;

template <typename Body>
void for_each_place(Stretch places, Body body) {
  parallel_blocks(places.size(), kRowsPerTask, [&](Index begin, Index end) {
    for (Index place = places.begin + begin; place < places.begin + end; ++place) body(place);
  });
}

/// Contiguous rows as one message.
std::span<float> as_message(Matrix& rows, Stretch places) {
  return rows.view().rows_from(places.begin, places.size()).flat();
}

/// The rows of this rank's own experts never leave: where they would arrive, and where they wait instead.
class Stayed {
 public:
  Stayed(const ChunkPlan& chunks, Index rank)
      : arriving_(chunks.arriving_from(rank)), leaving_(chunks.leaving_for(rank)) {}
  bool holds(Index arrival) const { return arriving_.begin <= arrival && arrival < arriving_.end; }
  Index left_at(Index arrival) const { return arrival - arriving_.begin + leaving_.begin; }

 private:
  Stretch arriving_, leaving_;
};

}  // namespace

AlltoallDispatch::AlltoallDispatch(const Communicator& ep, Index num_experts, Index chunks, NodeMap nodes,
                                   WireDType wire)
    : ep_(&ep),
      num_experts_(num_experts),
      chunks_(chunks),
      nodes_(std::move(nodes)),
      wire_(ep.size() == 1 ? WireDType::kFp32 : wire),  // nothing travels
      messages_(std::make_unique<Messages>(ep)) {
  require(chunks >= 1, "rows travel in one chunk at least");
}

void AlltoallDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, num_experts_, ep_->size(), plan);
  plan_receiving(exchange_counts(*ep_, plan.tokens_per_expert, plan.sent_per_rank).of_experts, plan);
  cut(plan);
}

void AlltoallDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
                            DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, counts.experts, counts.ranks, plan);
  plan_receiving(landing_counts(counts, ep_->rank()).received, plan);
  cut(plan);
}

void AlltoallDispatch::cut(DispatchPlan& plan) const {
  make_own<std::monostate>(plan);
  if (chunks_ == 1) return;  // as every plan is at first
  const GroupedRows rows = plan.grouped_rows();
  std::vector<Index> rows_per_expert;
  for (Index expert = 0; expert < rows.groups(); ++expert) rows_per_expert.push_back(rows.of_group(expert));
  plan_chunks(ep_->all_gather(cut_experts(rows_per_expert, chunks_)), ep_->rank(), plan);
}

Interlude AlltoallDispatch::progress() const {
  return Interlude::calling<&Messages::progress>(*messages_);
}

void AlltoallDispatch::begin(const RoundTrip& trip) {
  const DispatchPlan& plan = trip.plan;
  const ChunkPlan& chunks = plan.chunks;
  require(chunks.chunks == chunks_ && std::holds_alternative<std::monostate>(plan.own),
          "the alltoall dispatcher needs a plan of its own");
  trip.results.reshape_uninitialised(plan.rows(), trip.cols());
  if (trip.goes_out()) trip.rows.reshape_uninitialised(plan.rows(), trip.cols());
  if (trip.scalars_out) trip.scalars_out->rows.resize(at(plan.rows()));
  if (plan.ranks == 1) return gather(trip);
  const Index width = wire_cols(trip.cols(), wire_);
  const bool numbers = trip.scalars_out.has_value(), numbers_back = trip.scalars_back.has_value();
  leaving_.reshape_uninitialised(plan.places(), width, numbers);
  arriving_.reshape_uninitialised(plan.rows(), width, numbers || numbers_back);
  if (trip.goes_out()) receive_rows(trip);
  if (chunks_ > 1) {
    returning_.reshape_uninitialised(plan.places(), width, numbers_back);
    if (trip.comes_home()) receive_results(trip);
  }
  if (!trip.goes_out()) return;
  for (Index chunk = 0; chunk < chunks_; ++chunk)
    for_each_peer([&](Index peer) {
      const Stretch places = chunks.leaving_for(peer, chunk);
      pack(trip, places);
      send(peer, leaving_, places, numbers);
    });
  pack(trip, chunks.leaving_for(ep_->rank()));
}

void AlltoallDispatch::Travelling::reshape_uninitialised(Index count, Index width, bool with_numbers) {
  rows.reshape_uninitialised(count, width);
  if (with_numbers) numbers.reshape_uninitialised(count, 1);
}

/// Of a rank alone: rows land in the order in which they would leave.
void AlltoallDispatch::gather(const RoundTrip& trip) const {
  if (!trip.goes_out()) return;
  const Index cols = trip.tokens.cols;
  for_each_place({0, trip.plan.places()}, [&](Index place) {
    const Index slot = trip.plan.slot_order[at(place)];
    std::memcpy(trip.rows.view().row(place), trip.tokens.row(slot / trip.plan.top_k),
                at(cols) * sizeof(float));
    if (trip.scalars_out) trip.scalars_out->rows[at(place)] = trip.scalars_out->slots[at(slot)];
  });
}

template <typename Visit>
void AlltoallDispatch::for_each_peer(Visit visit) const {
  for (Index step = 1; step < ep_->size(); ++step) visit((ep_->rank() + step) % ep_->size());
}

/// Between two ranks messages keep their order, so that both sides go by chunk, and what goes out comes
/// before what returns.
void AlltoallDispatch::receive_rows(const RoundTrip& trip) {
  const bool numbers = trip.scalars_out.has_value();
  letters_ = (ep_->size() - 1) * (numbers ? 2 : 1);
  for (Index chunk = 0; chunk < chunks_; ++chunk)
    for_each_peer(
        [&](Index peer) { receive(peer, arriving_, trip.plan.chunks.arriving_from(peer, chunk), numbers); });
}

void AlltoallDispatch::receive_results(const RoundTrip& trip) {
  for (Index chunk = 0; chunk < chunks_; ++chunk)
    for_each_peer([&](Index peer) {
      receive(peer, home(), trip.plan.chunks.leaving_for(peer, chunk), trip.scalars_back.has_value());
    });
}

void AlltoallDispatch::receive(Index from, Travelling& into, Stretch places, bool numbers) {
  messages_->receive(static_cast<int>(from), as_message(into.rows, places));
  if (numbers) messages_->receive(static_cast<int>(from), as_message(into.numbers, places));
}

void AlltoallDispatch::pack(const RoundTrip& trip, Stretch places) {
  for_each_place(places, [&](Index place) {
    const Index slot = trip.plan.slot_order[at(place)];
    to_wire(trip.tokens.row(slot / trip.plan.top_k), trip.tokens.cols, wire_, leaving_.rows.row(place));
    if (trip.scalars_out) *leaving_.numbers.row(place) = trip.scalars_out->slots[at(slot)];
  });
}

void AlltoallDispatch::send(Index to, Travelling& from, Stretch places, bool numbers) {
  const auto leaves = [&](Matrix& matrix) {
    const std::span<const float> message = as_message(matrix, places);
    messages_->send(static_cast<int>(to), message);
    if (nodes_.nodes() > 1 && !nodes_.same_node(ep_->rank(), to))
      network_bytes_ += static_cast<Index>(message.size_bytes());
  };
  leaves(from.rows);
  if (numbers) leaves(from.numbers);
  if (chunks_ > 1) messages_->progress();  // while the next one is packed, this one may leave
}

bool AlltoallDispatch::arrived(Index chunk) {
  return messages_->arrived(chunk * letters_, letters_);
}

void AlltoallDispatch::await(const RoundTrip& trip, Index chunk) {
  const DispatchPlan& plan = trip.plan;
  if (plan.ranks == 1) return;
  messages_->wait_for(chunk * letters_, letters_);
  const Stayed stayed(plan.chunks, ep_->rank());
  for_each_place(plan.chunks.rows_of(chunk), [&](Index row) {
    const Index arrival = plan.landing_order[at(row)];
    const bool stays = stayed.holds(arrival);
    const Travelling& from = stays ? leaving_ : arriving_;
    const Index place = stays ? stayed.left_at(arrival) : arrival;
    from_wire(from.rows.row(place), trip.rows.cols(), wire_, trip.rows.view().row(row));
    if (trip.scalars_out) trip.scalars_out->rows[at(row)] = *from.numbers.row(place);
  });
}

void AlltoallDispatch::send_back(const RoundTrip& trip, Index chunk) {
  const DispatchPlan& plan = trip.plan;
  if (plan.ranks == 1) return;
  const bool numbers = trip.scalars_back.has_value();
  if (chunks_ == 1) {
    messages_->finish();  // rows go home to where they left
    home().reshape_uninitialised(plan.places(), arriving_.rows.cols(), numbers);
    receive_results(trip);
  }
  const Stayed stayed(plan.chunks, ep_->rank());
  for_each_place(plan.chunks.rows_of(chunk), [&](Index row) {
    const Index arrival = plan.landing_order[at(row)];
    const bool stays = stayed.holds(arrival);
    Travelling& to = stays ? home() : arriving_;
    const Index place = stays ? stayed.left_at(arrival) : arrival;
    to_wire(trip.results.view().row(row), trip.results.cols(), wire_, to.rows.row(place));
    if (numbers) *to.numbers.row(place) = trip.scalars_back->rows[at(row)];
  });
  for_each_peer([&](Index peer) { send(peer, arriving_, plan.chunks.arriving_from(peer, chunk), numbers); });
}

void AlltoallDispatch::finish(const RoundTrip& trip) {
  messages_->finish();
  if (!trip.comes_home()) return;
  const DispatchPlan& plan = trip.plan;
  sum_slots(plan, returned(trip), trip.sums, trip.mode);
  if (!trip.scalars_back) return;
  const auto& [rows, slots] = *trip.scalars_back;
  slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot) {
    const Index place = plan.slot_place[at(slot)];
    slots[at(slot)] = !plan.leaves(slot) ? 0 : plan.ranks == 1 ? rows[at(place)] : *home().numbers.row(place);
  }
}

ConstMatrixView AlltoallDispatch::returned(const RoundTrip& trip) {
  if (trip.plan.ranks == 1) return trip.results.view();
  if (wire_ == WireDType::kFp32) return home().rows;
  const Index cols = trip.sums.cols;
  widened_.reshape_uninitialised(trip.plan.places(), cols);
  for_each_place({0, trip.plan.places()},
                 [&](Index place) { from_wire(home().rows.row(place), cols, wire_, widened_.row(place)); });
  return widened_;
}

}  // namespace moeloom
