#include "comm/messages.hpp"

#include "base/meanwhile.hpp"
#include "comm/node_memory.hpp"

#include <algorithm>

#include "mpi_call.hpp"

namespace moeloom {
namespace {

/// Open MPI sends up to 64 KiB over TCP unasked. Anything longer asks first and leaves when the answer has
/// come, which stands in line behind all that the other side is sending: of two ranks that compute and have
/// megabytes for each other, one's rows would hardly move before the other's had all been taken.
constexpr Index kPieceBytes = 60 * 1024;
/// Within a node the receiver copies a message from where it lies, long ones at once.
constexpr Index kLongestMessage = Index{1} << 30;

/// visit(piece) of each; the receiver cuts as the sender does.
template <typename Byte, typename Visit>
void for_each_piece(std::span<Byte> message, bool near, Visit visit) {
  const Index most = near ? kLongestMessage : kPieceBytes;
  for (Index done = 0; done < std::ssize(message); done += most)
    visit(message.subspan(at(done), at(std::min(most, std::ssize(message) - done))));
}

bool are_near(const CommunicatorHandle& group, Index one, Index other) {
  return group.on_one_node || (group.nodes && group.nodes->same_node(one, other));
}

/// The requests of one direction, in the order in which they were made.
class RequestList {
 public:
  RequestList() = default;
  RequestList(const RequestList&) = delete;
  RequestList& operator=(const RequestList&) = delete;
  /// Of an exchange that an exception ended: nobody waits for these any more, and the job is about to end or
  /// MPI has ended.
  ~RequestList() {
    if (!mpi_is_running()) return;
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }

  Index size() const { return std::ssize(requests_); }
  bool all_ended() const {
    return std::all_of(requests_.begin() + static_cast<std::ptrdiff_t>(first_open_), requests_.end(),
                       [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  }
  MPI_Request& add() { return requests_.emplace_back(MPI_REQUEST_NULL); }
  void cancel() {
    for (MPI_Request& request : requests_)
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
  void clear() {
    requests_.clear();
    first_open_ = 0;
  }

  void wait_for(Index first, Index count) {
    if (count == 0) return;  // nor is MPI needed by a rank alone
    check_mpi(MPI_Waitall(mpi_count(count), requests_.data() + first, MPI_STATUSES_IGNORE), "MPI_Waitall");
  }
  /// note(request) of those that ended since they were last asked after; false: none did. A look that finds
  /// nothing lets MPI take from its sockets, and says so only when asked again.
  template <typename Note>
  bool look(Note note) {
    return ask(MPI_Testsome, "MPI_Testsome", note) || ask(MPI_Testsome, "MPI_Testsome", note);
  }

 private:
  template <typename Ask, typename Note>
  bool ask(Ask some, const char* call, Note note) {
    while (first_open_ < requests_.size() && requests_[first_open_] == MPI_REQUEST_NULL) ++first_open_;
    const std::span open = std::span(requests_).subspan(first_open_);
    if (open.empty()) return false;
    ended_.resize(open.size());
    int count = 0;
    check_mpi(some(mpi_count(std::ssize(open)), open.data(), &count, ended_.data(), MPI_STATUSES_IGNORE),
              call);
    if (count == MPI_UNDEFINED) return false;
    for (int i = 0; i < count; ++i) note(static_cast<Index>(first_open_) + ended_[at(i)]);
    return count > 0;
  }

  std::vector<MPI_Request> requests_;
  std::size_t first_open_ = 0;  // all before it have ended
  std::vector<int> ended_;
};

}  // namespace

struct Messages::Requests {
  /// What is received, until its last piece has arrived.
  struct Letter {
    Index first_piece;
    Index pieces;
    Index travelling;
    int from;
  };
  /// What is sent.
  struct Departure {
    Index first_piece;
    Index pieces;
    int to;
  };
  RequestList receives, sends;
  std::vector<Letter> letters;
  std::vector<Departure> departures;
  std::vector<Index> letter_of;  // each piece

  ~Requests() {
    if (mpi_is_running()) receives.cancel();
  }

  void note_arrival(Index piece) { --letters[at(letter_of[at(piece)])].travelling; }
};

Messages::Messages(const Communicator& ranks, Channel channel)
    : ranks_(&ranks), tag_(static_cast<int>(channel)), requests_(std::make_unique<Requests>()) {}
Messages::~Messages() = default;

void Messages::receive_bytes(int from, std::span<std::byte> into) {
  require(into.empty() || ranks_->handle_ != nullptr, "a rank alone has nobody to hear from");
  auto& [receives, sends, letters, departures, letter_of] = *requests_;
  const Index first = receives.size(), number = std::ssize(letters);
  const bool near = !into.empty() && are_near(*ranks_->handle_, ranks_->rank(), from);
  for_each_piece(into, near, [&](std::span<std::byte> piece) {
    check_mpi(MPI_Irecv(piece.data(), mpi_count(std::ssize(piece)), MPI_BYTE, from, tag_,
                        ranks_->handle_->comm, &receives.add()),
              "MPI_Irecv");
    letter_of.push_back(number);
  });
  letters.push_back({first, receives.size() - first, receives.size() - first, from});
}

void Messages::send_bytes(int to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  require(ranks_->handle_ != nullptr, "a rank alone has nobody to write to");
  ranks_->count_call(std::ssize(bytes));
  const Index first = requests_->sends.size();
  const bool near = are_near(*ranks_->handle_, ranks_->rank(), to);
  for_each_piece(bytes, near, [&](std::span<const std::byte> piece) {
    check_mpi(MPI_Isend(piece.data(), mpi_count(std::ssize(piece)), MPI_BYTE, to, tag_, ranks_->handle_->comm,
                        &requests_->sends.add()),
              "MPI_Isend");
  });
  requests_->departures.push_back({first, requests_->sends.size() - first, to});
}

void Messages::wait_for(Index first, Index count) {
  for (Index number = first; number < first + count; ++number) {
    auto& letter = requests_->letters[at(number)];
    const auto in = ranks_->waiting_in("MPI_Waitall", letter.from);
    requests_->receives.wait_for(letter.first_piece, letter.pieces);
    letter.travelling = 0;
  }
}

void Messages::serve_until_arrived(Index first, Index count) {
  NodeWait wait(nullptr);
  for (Index number = first; number < first + count; ++number) {
    const auto in = ranks_->waiting_in("MPI_Testsome", requests_->letters[at(number)].from);
    for (; !arrived(number, 1); wait.pause()) do_meanwhile();
  }
}

void Messages::serve_until_finished() {
  serve_until_arrived(0, std::ssize(requests_->letters));
  NodeWait wait(nullptr);
  for (; !all_ended(); wait.pause()) do_meanwhile();
  finish();
}

bool Messages::arrived(Index first, Index count) {
  progress();
  return std::ranges::all_of(std::span(requests_->letters).subspan(at(first), at(count)),
                             [](const auto& letter) { return letter.travelling == 0; });
}

bool Messages::has_arrived(Index number) const {
  return requests_->letters[at(number)].travelling == 0;
}

bool Messages::all_ended() {
  progress();
  return requests_->receives.all_ended() && requests_->sends.all_ended();
}

/// A look takes one piece of each peer from its socket, where the next one may lie already.
void Messages::progress() {
  bool moved = true;
  while (moved) {
    moved = requests_->receives.look([&](Index piece) { requests_->note_arrival(piece); });
    moved = requests_->sends.look([](Index) {}) || moved;
  }
}

/// One after the other, so that the board shows the oldest that is open: MPI moves all of them meanwhile.
void Messages::finish() {
  auto& [receives, sends, letters, departures, letter_of] = *requests_;
  wait_for(0, std::ssize(letters));
  for (const auto& [first, pieces, to] : departures) {
    const auto in = ranks_->waiting_in("MPI_Waitall", to);
    sends.wait_for(first, pieces);
  }
  receives.clear();
  sends.clear();
  letters.clear();
  departures.clear();
  letter_of.clear();
}

}  // namespace moeloom
