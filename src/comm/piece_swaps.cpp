#include "piece_swaps.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// Open MPI sends up to 64 KiB over TCP unasked, its header included.
constexpr Index kLongestPiece = 60 * 1024;
/// Of a large group the pieces are shorter: one to each other rank makes so many bytes.
constexpr Index kBytesUnderWay = 480 * 1024;
/// What a rank may have under way beyond one piece of each pair. With less, a link idles while a rank waits
/// for its processor; with more, some pairs run ahead, and at the end links idle that the others cannot use.
constexpr Index kSparePieces = 6;
/// Of a pair, so that a rank that is late does not take all that may be under way; by so many, shared among
/// the pairs of a rank.
constexpr Index kWindows = 28;

template <typename Byte>
std::span<Byte> piece_of(std::span<Byte> message, Index number, Index pieces) {
  // Sizes differ by a byte at most. Not message.size() * number / pieces, which might overflow.
  const Index each = std::ssize(message) / pieces, longer = std::ssize(message) % pieces;
  const Index begin = each * number + std::min(number, longer);
  return message.subspan(at(begin), at(each + (number < longer ? 1 : 0)));
}

}  // namespace

PieceSwaps::PieceSwaps(const Communicator& ranks)
    : ranks_(&ranks),
      piece_bytes_(std::min(kLongestPiece, kBytesUnderWay / std::max(1, ranks.size() - 1))),
      window_(std::clamp<Index>(kWindows / std::max(1, ranks.size() - 1), 2, kSparePieces + 1)),
      spare_(kSparePieces) {}

/// Of an exchange that an exception ended: nobody waits for these any more, and the job is about to end.
PieceSwaps::~PieceSwaps() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (static_cast<Index>(i) % slots() < 2 * window_) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void PieceSwaps::add(Index rank, std::span<const std::byte> sent, std::span<std::byte> received) {
  require(rank != ranks_->rank() && rank < ranks_->size(), "pieces are swapped with another rank");
  const Index longer = std::max(std::ssize(sent), std::ssize(received));
  pairs_.push_back({.rank = static_cast<int>(rank),
                    .sent = sent,
                    .received = received,
                    .pieces = ceil_div(longer, piece_bytes_)});
}

/// Tells MPI where the pair's next piece goes, before it comes: the other may be two windows ahead.
void PieceSwaps::await_next(Index number, Index slot) {
  Pair& pair = pairs_[at(number)];
  if (pair.awaited == pair.pieces) return;
  const std::span piece = piece_of(pair.received, pair.awaited++, pair.pieces);
  check_mpi(MPI_Irecv(piece.data(), mpi_count(std::ssize(piece)), MPI_BYTE, pair.rank, kPieceTag,
                      ranks_->handle_->comm, &request(number, slot)),
            "MPI_Irecv");
}

MPI_Request* PieceSwaps::way_out(Index number) {
  const Pair& pair = pairs_[at(number)];
  const bool in_turn = pair.left <= pair.come;
  if (pair.left == pair.pieces || (!in_turn && (spare_ == 0 || pair.left >= pair.come + window_)))
    return nullptr;
  for (Index slot = 2 * window_; slot < slots(); ++slot)
    if (request(number, slot) == MPI_REQUEST_NULL) return &request(number, slot);
  return nullptr;
}

void PieceSwaps::send_what_may_leave() {
  bool sent = true;
  while (sent) sent = send_next();
}

bool PieceSwaps::send_next() {
  Pair* next = nullptr;
  MPI_Request* way = nullptr;
  for (Index number = 0; number < std::ssize(pairs_); ++number) {
    Pair& pair = pairs_[at(number)];
    if (next != nullptr && pair.left * next->pieces >= next->left * pair.pieces) continue;
    MPI_Request* const free = way_out(number);
    if (free == nullptr) continue;
    next = &pair;
    way = free;
  }
  if (next == nullptr) return false;
  if (next->left > next->come) --spare_;
  const std::span piece = piece_of(next->sent, next->left++, next->pieces);
  check_mpi(MPI_Isend(piece.data(), mpi_count(std::ssize(piece)), MPI_BYTE, next->rank, kPieceTag,
                      ranks_->handle_->comm, way),
            "MPI_Isend");
  return true;
}

Index PieceSwaps::awaited_rank() const {
  const auto open = std::ranges::find_if(pairs_, [](const Pair& pair) { return pair.come < pair.pieces; });
  if (open != pairs_.end()) return open->rank;
  const auto leaving =
      std::ranges::find_if(requests_, [](MPI_Request request) { return request != MPI_REQUEST_NULL; });
  return leaving == requests_.end() ? -1 : pairs_[at((leaving - requests_.begin()) / slots())].rank;
}

void PieceSwaps::take_some() {
  const auto in = ranks_->waiting_in("MPI_Waitsome", awaited_rank());
  int count = 0;
  check_mpi(MPI_Waitsome(mpi_count(std::ssize(requests_)), requests_.data(), &count, ended_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Waitsome");
  for (const int ended : std::span(ended_).first(at(count))) {
    const Index pair = ended / slots(), slot = ended % slots();
    if (slot >= 2 * window_) continue;
    if (pairs_[at(pair)].left > ++pairs_[at(pair)].come) ++spare_;
    await_next(pair, slot);
  }
}

void PieceSwaps::finish() {
  requests_.assign(pairs_.size() * at(slots()), MPI_REQUEST_NULL);
  ended_.resize(requests_.size());
  for (Index pair = 0; pair < std::ssize(pairs_); ++pair)
    for (Index slot = 0; slot < 2 * window_; ++slot) await_next(pair, slot);
  const auto open = [](MPI_Request request) { return request != MPI_REQUEST_NULL; };
  send_what_may_leave();
  while (std::ranges::any_of(requests_, open)) {
    take_some();
    send_what_may_leave();
  }
}

}  // namespace moeloom
