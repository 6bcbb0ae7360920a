#include "dispatch/chunk_courier.hpp"

#include "base/meanwhile.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "dispatch/row_copy.hpp"
#include "dispatch/row_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 16;

/// A peer a parcel: of each chunk all routes.
std::vector<Parcel> parcels_in_chunks(const std::vector<Index>& routes, const CrossingRows& rows,
                                      Index CrossingCounts::*count, Index row_floats, bool with_scalars) {
  std::vector<Index> peers;
  while (peers.size() < rows.parcels.size()) peers.insert(peers.end(), routes.begin(), routes.end());
  return parcels_of(peers, rows.parcels, count, row_floats, with_scalars);
}

void make_room(Matrix& buffer, std::span<const Parcel> parcels) {
  buffer.reshape_uninitialised(parcels.empty() ? 0 : parcels.back().end(), 1);
}

/// visit(copy, scalar) of the numbers that a parcel brings, in their order.
template <typename Visit>
void for_each_scalar(const Parcel& parcel, const CrossingRows& rows, std::span<float> message, Visit visit) {
  if (parcel.scalars == 0) return;
  Index next = 0;
  for (Index i = parcel.first_row; i < parcel.first_row + parcel.rows; ++i) {
    const Stretch copies = rows.copies_of(rows.rows[at(i)]);
    for (Index copy = copies.begin; copy < copies.end; ++copy) visit(copy, parcel.scalar(message, next++));
  }
}

}  // namespace

/// Off while it lives: the tasks of one serving may have another between them.
class ChunkCourier::ServesOnce {
 public:
  explicit ServesOnce(bool& serving) : serving_(serving) { serving_ = false; }
  ServesOnce(const ServesOnce&) = delete;
  ServesOnce& operator=(const ServesOnce&) = delete;
  ~ServesOnce() { serving_ = true; }

 private:
  bool& serving_;
};

ChunkCourier::ChunkCourier(const Communicator& ep, HierarchicalSettings settings, Index chunks)
    : ep_(&ep),
      settings_(std::move(settings)),
      routes_(crossing_routes(settings_.nodes, ep.rank())),
      chunks_(chunks),
      node_(settings_.memory, chunks + 1),
      messages_(ep) {}

void ChunkCourier::send(const Parcel& parcel, Matrix& buffer) {
  const std::span<const float> message = parcel.of(buffer.view().flat());
  network_bytes_ += static_cast<Index>(message.size_bytes());
  messages_.send(static_cast<int>(parcel.peer), message);
  messages_.progress();  // while the next one is made, this one may leave
}

/// Between two ranks messages keep their order: what goes out by chunk, then what returns by chunk.
void ChunkCourier::send_tokens(const RoundTrip& trip) {
  plan_ = &std::get<HierarchicalPlan>(trip.plan.own);
  cols_ = trip.cols();
  to_answer_ = trip.comes_home() ? chunks_ : 0;
  handed_out_ = answered_ = 0;
  if (settings_.nodes.nodes() == 1) return;
  const CrossingChunks& rows = plan().chunks;
  const Index width = wire_cols(cols_, settings_.wire);
  const bool out = trip.scalars_out.has_value(), back = trip.scalars_back.has_value();
  leaving_ = arriving_ = returning_ = answering_ = {};
  if (trip.goes_out()) {
    leaving_ = parcels_in_chunks(routes_.out, rows.leaving, &CrossingCounts::tokens, width, out);
    arriving_ = parcels_in_chunks(routes_.in, rows.arriving, &CrossingCounts::tokens, width, out);
  }
  if (trip.comes_home()) {
    returning_ = parcels_in_chunks(routes_.out, rows.returning, &CrossingCounts::sums, width, back);
    answering_ = parcels_in_chunks(routes_.in, rows.answering, &CrossingCounts::sums, width, back);
  }
  make_room(leaving_rows_, leaving_);
  make_room(arriving_rows_, arriving_);
  make_room(returning_rows_, returning_);
  make_room(answering_rows_, answering_);
  scratch_.reshape_uninitialised(threads(), cols_);
  for (const Parcel& parcel : arriving_)
    messages_.receive(static_cast<int>(parcel.peer), parcel.of(arriving_rows_.view().flat()));
  for (const Parcel& parcel : returning_)
    messages_.receive(static_cast<int>(parcel.peer), parcel.of(returning_rows_.view().flat()));
  for (const Parcel& parcel : leaving_) {
    const std::span<float> message = parcel.of(leaving_rows_.view().flat());
    parallel_blocks(parcel.rows, kRowsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index number = rows.leaving.rows[at(parcel.first_row + i)];
        to_wire(trip.tokens.row(plan().crossing.tokens[at(number)]), cols_, settings_.wire,
                parcel.row(message, i));
      }
    });
    for_each_scalar(parcel, rows.leaving, message, [&](Index copy, float& scalar) {
      scalar = trip.scalars_out->slots[at(plan().crossing.slots[at(copy)])];
    });
    send(parcel, leaving_rows_);
  }
}

void ChunkCourier::start_serving() {
  serving_ = true;
  node_.tell(NodeChunks::kWritten, 1 + chunks_handed_out());
}

Index ChunkCourier::chunks_handed_out() const {
  return arriving_.empty() ? chunks_ : handed_out_ / std::ssize(routes_.in);
}

void ChunkCourier::progress() {
  serve(By::kCaller);
}

void ChunkCourier::serve(By by) {
  messages_.progress();
  if (!serving_) return;
  const ServesOnce once(serving_);
  while (handed_out_ < std::ssize(arriving_) && messages_.has_arrived(handed_out_)) {
    hand_out(arriving_[at(handed_out_++)], by);
    node_.tell(NodeChunks::kWritten, 1 + chunks_handed_out());
  }
  const Index routes = std::ssize(routes_.in);
  while (answered_ < to_answer_ && node_.all(NodeChunks::kComputed, answered_ + 1)) {
    for (Index route = 0; route < routes; ++route) send_sums(answering_[at(answered_ * routes + route)], by);
    ++answered_;
  }
}

void ChunkCourier::hand_out(const Parcel& parcel, By by) {
  const CrossingRows& rows = plan().chunks.arriving;
  const std::vector<CrossingCopy>& copies = plan().crossing.copies;
  const std::span<float> message = parcel.of(arriving_rows_.view().flat());
  const RowWriter write(std::ssize(copies), cols_);
  const auto hand = [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float* row = parcel.row(message, i);
      if (settings_.wire != WireDType::kFp32) {
        from_wire(row, cols_, settings_.wire, scratch_.row(thread_index()));
        row = scratch_.row(thread_index());
      }
      const Stretch those = rows.copies_of(rows.rows[at(parcel.first_row + i)]);
      for (const CrossingCopy& to : std::span(copies).subspan(at(those.begin), at(those.size())))
        write(row, node_.member(to.member).rows + to.row * cols_);
    }
    write.finish();
  };
  by == By::kAll ? parallel_blocks(parcel.rows, kRowsPerTask, hand) : hand(0, parcel.rows);
  for_each_scalar(parcel, rows, message, [&](Index copy, float scalar) {
    const CrossingCopy& to = copies[at(copy)];
    node_.member(to.member).row_scalars[to.row] = scalar;
  });
}

void ChunkCourier::send_sums(const Parcel& parcel, By by) {
  const CrossingRows& rows = plan().chunks.answering;
  const std::span<float> message = parcel.of(answering_rows_.view().flat());
  const auto sum = [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      sum_copies(rows.copies_of(rows.rows[at(parcel.first_row + i)]), parcel.row(message, i));
  };
  by == By::kAll ? parallel_blocks(parcel.rows, kRowsPerTask, sum) : sum(0, parcel.rows);
  for_each_scalar(parcel, rows, message, [&](Index copy, float& scalar) {
    const CrossingCopy& from = plan().crossing.copies[at(copy)];
    scalar = node_.member(from.member).result_scalars[from.row];
  });
  send(parcel, answering_rows_);
}

void ChunkCourier::sum_copies(Stretch copies, float* wire) {
  const auto row_of = [&](Index k) -> const float* {
    const CrossingCopy& copy = plan().crossing.copies[at(copies.begin + k)];
    return node_.member(copy.member).results + copy.row * cols_;
  };
  if (settings_.wire == WireDType::kFp32)
    return sum_rows(copies.size(), cols_, row_of, wire, Write::kReplace);
  float* row = scratch_.row(thread_index());
  sum_rows(copies.size(), cols_, row_of, row, Write::kReplace);
  to_wire(row, cols_, settings_.wire, wire);
}

/// As the board shows it: whose message is still to be handed out here, or whose part the node waits for.
Index ChunkCourier::awaited() const {
  if (handed_out_ < std::ssize(arriving_)) return ep_->shown_rank(arriving_[at(handed_out_)].peer);
  const int written = node_.behind(NodeChunks::kWritten, chunks_ + 1);
  const int member = written >= 0 ? written : node_.behind(NodeChunks::kComputed, chunks_);
  return member < 0 ? -1 : node_.memory().shown_rank(member);
}

template <typename Ready>
void ChunkCourier::serve_until(Ready ready) {
  NodeWait wait(node_.memory().board());
  while (true) {
    serve(By::kAll);
    if (ready()) return;
    do_meanwhile();
    wait.pause(awaited());
  }
}

void ChunkCourier::await_own_node() {
  serve_until([&] { return node_.all(NodeChunks::kWritten, 1); });
}

bool ChunkCourier::arrived(Index chunk) {
  serve(By::kAll);
  return node_.all(NodeChunks::kWritten, chunk + 2);
}

void ChunkCourier::await(Index chunk) {
  serve_until([&] { return node_.all(NodeChunks::kWritten, chunk + 2); });
}

void ChunkCourier::finish() {
  serve_until([&] { return handed_out_ == std::ssize(arriving_) && answered_ == to_answer_; });
  serving_ = false;
  messages_.finish();
  widen_sums();
}

void ChunkCourier::widen_sums() {
  const CrossingRows& rows = plan().chunks.returning;
  const bool widen = settings_.wire != WireDType::kFp32;
  sums_.resize(rows.rows.size());
  if (widen) widened_.reshape_uninitialised(std::ssize(sums_), cols_);
  for (const Parcel& parcel : returning_) {
    const std::span<float> message = parcel.of(returning_rows_.view().flat());
    parallel_blocks(parcel.rows, kRowsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        const Index number = rows.rows[at(parcel.first_row + i)];
        sums_[at(number)] = parcel.row(message, i);
        if (!widen) continue;
        from_wire(sums_[at(number)], cols_, settings_.wire, widened_.row(number));
        sums_[at(number)] = widened_.row(number);
      }
    });
  }
}

void ChunkCourier::take_scalars(std::span<float> slots) {
  for (const Parcel& parcel : returning_)
    for_each_scalar(parcel, plan().chunks.returning, parcel.of(returning_rows_.view().flat()),
                    [&](Index copy, float scalar) { slots[at(plan().crossing.slots[at(copy)])] = scalar; });
}

}  // namespace moeloom
