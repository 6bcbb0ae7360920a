// Messages under way between this rank and a few others.
//
// For exchanges in which most pairs have nothing to say to each other, whom a collective would visit all the
// same, and in which what has arrived is used while the rest still travels. Both sides know every size, so
// nothing is sent for an empty message. Between two ranks, messages arrive in the order in which they were
// sent.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <memory>
#include <span>

namespace moeloom {

/// Messages of one channel are told apart from those of another between the same ranks; within one, every
/// rank lets them follow each other in the same order.
enum class Channel {
  kRows = 1,
  kReplicas = 9,
  kSums = 3,
  kHalfSums = 8,
  kWeights = 4,
  kPassedOnWeights = 7,
  kMeeting = 10
};

/// Buffers must live and be left alone until finish(), a receive's until it has arrived. Throws MpiError.
class Messages {
 public:
  explicit Messages(const Communicator& ranks, Channel channel = Channel::kRows);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// The first receive is number 0, the next 1, from 0 again after finish().
  void receive(int from, std::span<float> into) { receive_bytes(from, std::as_writable_bytes(into)); }
  void send(int to, std::span<const float> values) { send_bytes(to, std::as_bytes(values)); }
  void receive_bytes(int from, std::span<std::byte> into);
  void send_bytes(int to, std::span<const std::byte> bytes);

  /// Waits for receives [first, first + count).
  void wait_for(Index first, Index count);
  /// The same, and does what is done meanwhile (base/meanwhile.hpp): others may wait for that, and who sends
  /// these for them.
  void serve_until_arrived(Index first, Index count);
  /// Whether receives [first, first + count) have arrived, without waiting.
  bool arrived(Index first, Index count);
  /// Whether receive `number` has arrived, by the last look.
  bool has_arrived(Index number) const;
  /// Whether all that was received and sent has ended, so that finish() will not wait.
  bool all_ended();
  /// Lets messages move on without waiting: MPI moves them in its calls alone.
  void progress();
  /// Waits for all that is still under way, and forgets it.
  void finish();
  /// The same as serve_until_arrived().
  void serve_until_finished();

 private:
  struct Requests;

  const Communicator* ranks_;
  int tag_;
  std::unique_ptr<Requests> requests_;
};

}  // namespace moeloom
