// What crosses between nodes while experts compute, and what a rank does about it for the others of its node:
// it hands out the tokens that arrive, and sends back sums of what the node has made of them.
//
// Both are work of whichever rank a route leads to, and both are due while that rank computes. So progress()
// does what can be done at once, and is called between the tiles of products; who has to wait serves
// meanwhile, so that no two ranks can wait for each other.
#pragma once

#include "comm/messages.hpp"
#include "moe/dispatch/hierarchical_dispatch.hpp"
#include "moe/dispatch/round_trip.hpp"

#include "dispatch/node_chunks.hpp"
#include "dispatch/parcel.hpp"

namespace moeloom {

/// A trip: send_tokens, then node().open and start_serving, await as often as wanted, finish.
class ChunkCourier {
 public:
  ChunkCourier(const Communicator& ep, HierarchicalSettings settings, Index chunks);

  NodeChunks& node() { return node_; }
  const NodeChunks& node() const { return node_; }
  const HierarchicalSettings& settings() const { return settings_; }
  const CrossingRoutes& routes() const { return routes_; }

  /// Every receive of the trip is posted, and this rank's tokens leave, those of the first chunk first.
  void send_tokens(const RoundTrip& trip);
  /// The node is open, and this rank has written its own tokens there.
  void start_serving();
  /// Does what can be done without waiting; for the thread that calls the others, which may be in the middle
  /// of products: it starts no tasks.
  void progress();
  /// The same, with all threads: between products.
  void serve() { serve(By::kAll); }
  /// Waits until all ranks of this node have written the rows of their own tokens, and serves.
  void await_own_node();
  /// Whether all rows of this node for experts of `chunk` are in place, by whomever.
  bool arrived(Index chunk);
  /// Waits for that, and serves.
  void await(Index chunk);
  /// Waits until nothing is left to be done for others and everything is home, and serves.
  void finish();

  /// After finish(): where the row lies that came home as sum `number` of all routes.
  const float* sum(Index number) const { return sums_[at(number)]; }
  /// Numbers beside them into slots [N], where they travel.
  void take_scalars(std::span<float> slots);
  std::int64_t network_bytes() const { return network_bytes_; }

 private:
  class ServesOnce;
  /// Who does it: all threads, or the calling one because tasks of others are under way.
  enum class By { kAll, kCaller };
  const HierarchicalPlan& plan() const { return *plan_; }
  void serve(By by);
  void hand_out(const Parcel& parcel, By by);
  void send_sums(const Parcel& parcel, By by);
  void sum_copies(Stretch copies, float* wire);
  void send(const Parcel& parcel, Matrix& buffer);
  void widen_sums();
  template <typename Ready>
  void serve_until(Ready ready);
  Index awaited() const;
  Index chunks_handed_out() const;

  const Communicator* ep_;
  HierarchicalSettings settings_;
  CrossingRoutes routes_;
  Index chunks_;
  NodeChunks node_;
  // Of a trip: parcels of all chunks, with the rows and numbers that they hold.
  const HierarchicalPlan* plan_ = nullptr;
  Index cols_ = 0;
  std::vector<Parcel> leaving_, arriving_, answering_, returning_;
  Matrix leaving_rows_, arriving_rows_, answering_rows_, returning_rows_;
  Matrix widened_;                  // sums that came home as bf16
  Matrix scratch_;                  // a row a thread
  std::vector<const float*> sums_;  // by number
  bool serving_ = false;
  Index handed_out_ = 0;  // parcels of arriving_
  Index answered_ = 0;    // chunks, of to_answer_
  Index to_answer_ = 0;
  std::int64_t network_bytes_ = 0;
  Messages messages_;  // ends before the rows that it reads and writes
};

}  // namespace moeloom
