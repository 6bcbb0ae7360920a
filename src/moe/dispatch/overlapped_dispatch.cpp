#include "moeloom/moe/dispatch/overlapped_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/moe/dispatch/alltoall_dispatch.hpp"

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

/// Among what has arrived, where a row comes from.
Index arrival_of(const DispatchPlan& plan, Index row) {
  return plan.ranks == 1 ? row : plan.landing_order[at(row)];
}

}  // namespace

OverlappedDispatch::OverlappedDispatch(const Communicator& ep, Index num_experts, Index chunks, NodeMap nodes,
                                       WireDType wire)
    : ep_(&ep),
      num_experts_(num_experts),
      chunks_(chunks),
      peers_(ep.size() - 1),
      nodes_(std::move(nodes)),
      wire_(ep.size() == 1 ? WireDType::kFp32 : wire),  // nothing travels
      messages_(std::make_unique<Messages>(ep)) {
  require(chunks >= 1, "rows travel in one chunk at least");
}

void OverlappedDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_arrivals(*ep_, num_experts_, topk_idx, top_k, plan);
  make_own<std::monostate>(plan);
  const GroupedRows rows = plan.grouped_rows();
  std::vector<Index> rows_per_expert;
  for (Index expert = 0; expert < rows.groups(); ++expert) rows_per_expert.push_back(rows.of_group(expert));
  plan_chunks(ep_->all_gather(cut_experts(rows_per_expert, chunks_)), ep_->rank(), plan);
}

Interlude OverlappedDispatch::progress() const {
  return Interlude::calling<&Messages::progress>(*messages_);
}

void OverlappedDispatch::begin(const RoundTrip& trip) {
  const DispatchPlan& plan = trip.plan;
  const ChunkPlan& chunks = plan.chunks;
  require(chunks.chunks == chunks_ && std::holds_alternative<std::monostate>(plan.own),
          "the overlapped dispatcher needs a plan of its own");
  const Index cols = trip.tokens.cols, width = wire_cols(cols, wire_) + 1;
  leaving_.reshape_uninitialised(plan.places(), width);
  arriving_.reshape_uninitialised(plan.rows(), width);
  returning_.reshape_uninitialised(plan.places(), width);
  trip.rows.reshape_uninitialised(plan.rows(), cols);
  trip.results.reshape_uninitialised(plan.rows(), cols);
  if (trip.scalars_out) trip.scalars_out->rows.resize(at(plan.rows()));
  receive_all(chunks, !trip.one_way);
  for (Index chunk = 0; chunk < chunks_; ++chunk)
    for_each_peer([&](Index peer) {
      const Stretch places = chunks.leaving_for(peer, chunk);
      pack(trip, places);
      send(peer, leaving_, places);
    });
  pack(trip, chunks.leaving_for(ep_->rank()));
}

template <typename Visit>
void OverlappedDispatch::for_each_peer(Visit visit) const {
  for (Index step = 1; step < ep_->size(); ++step) visit((ep_->rank() + step) % ep_->size());
}

/// Between two ranks messages keep their order, so that both sides go by chunk, and what goes out comes
/// before what returns.
void OverlappedDispatch::receive_all(const ChunkPlan& chunks, bool returning) {
  for (Index chunk = 0; chunk < chunks_; ++chunk)
    for_each_peer([&](Index peer) {
      messages_->receive(static_cast<int>(peer), as_message(arriving_, chunks.arriving_from(peer, chunk)));
    });
  if (!returning) return;
  for (Index chunk = 0; chunk < chunks_; ++chunk)
    for_each_peer([&](Index peer) {
      messages_->receive(static_cast<int>(peer), as_message(returning_, chunks.leaving_for(peer, chunk)));
    });
}

void OverlappedDispatch::pack(const RoundTrip& trip, Stretch places) {
  const Index cols = trip.tokens.cols, number = wire_cols(cols, wire_);
  for_each_place(places, [&](Index place) {
    const Index slot = trip.plan.slot_order[at(place)];
    float* const row = leaving_.row(place);
    to_wire(trip.tokens.row(slot / trip.plan.top_k), cols, wire_, row);
    row[number] = trip.scalars_out ? trip.scalars_out->slots[at(slot)] : 0;
  });
}

void OverlappedDispatch::send(Index to, Matrix& rows, Stretch places) {
  const std::span<const float> message = as_message(rows, places);
  messages_->send(static_cast<int>(to), message);
  messages_->progress();  // while the next one is packed, this one may leave
  if (nodes_.nodes() <= 1 || nodes_.same_node(ep_->rank(), to)) return;
  network_bytes_ += static_cast<Index>(message.size_bytes());
}

bool OverlappedDispatch::arrived(Index chunk) {
  return messages_->arrived(chunk * peers_, peers_);
}

void OverlappedDispatch::await(const RoundTrip& trip, Index chunk) {
  const DispatchPlan& plan = trip.plan;
  const Index cols = trip.rows.cols(), number = wire_cols(cols, wire_);
  messages_->wait_for(chunk * peers_, peers_);
  const Stayed stayed(plan.chunks, ep_->rank());
  for_each_place(plan.chunks.rows_of(chunk), [&](Index row) {
    const Index place = arrival_of(plan, row);
    const float* const from =
        stayed.holds(place) ? leaving_.row(stayed.left_at(place)) : arriving_.row(place);
    from_wire(from, cols, wire_, trip.rows.view().row(row));
    if (trip.scalars_out) trip.scalars_out->rows[at(row)] = from[number];
  });
}

void OverlappedDispatch::send_back(const RoundTrip& trip, Index chunk) {
  const DispatchPlan& plan = trip.plan;
  const Index cols = trip.results.cols(), number = wire_cols(cols, wire_);
  const Stayed stayed(plan.chunks, ep_->rank());
  for_each_place(plan.chunks.rows_of(chunk), [&](Index row) {
    const Index place = arrival_of(plan, row);
    float* const to = stayed.holds(place) ? returning_.row(stayed.left_at(place)) : arriving_.row(place);
    to_wire(trip.results.view().row(row), cols, wire_, to);
    to[number] = trip.scalars_back ? trip.scalars_back->rows[at(row)] : 0;
  });
  for_each_peer([&](Index peer) { send(peer, arriving_, plan.chunks.arriving_from(peer, chunk)); });
}

void OverlappedDispatch::finish(const RoundTrip& trip) {
  messages_->finish();
  if (trip.one_way) return;
  const DispatchPlan& plan = trip.plan;
  const Index number = wire_cols(trip.sums.cols, wire_);
  if (wire_ == WireDType::kFp32) {
    sum_slots(plan, returning_.view().cols_from(0, number), trip.sums, trip.mode);
  } else {
    widened_.reshape_uninitialised(plan.places(), trip.sums.cols);
    for_each_place({0, plan.places()}, [&](Index place) {
      from_wire(returning_.row(place), trip.sums.cols, wire_, widened_.row(place));
    });
    sum_slots(plan, widened_, trip.sums, trip.mode);
  }
  if (!trip.scalars_back) return;
  trip.scalars_back->slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot)
    trip.scalars_back->slots[at(slot)] =
        plan.leaves(slot) ? returning_.row(plan.slot_place[at(slot)])[number] : 0;
}

}  // namespace moeloom
