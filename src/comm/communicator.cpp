// Making communicators, and the collectives in which every rank gives the same amount: gathers, sums,
// broadcasts. A rank alone answers without MPI.
#include "moeloom/comm/communicator.hpp"

#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "mpi_call.hpp"

namespace moeloom {

Communicator::Communicator(std::unique_ptr<CommunicatorHandle> handle) : handle_(std::move(handle)) {
  if (!handle_) return;
  check_mpi(MPI_Comm_set_errhandler(handle_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(handle_->comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(handle_->comm, &size_), "MPI_Comm_size");
}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::self() {
  return Communicator(nullptr);
}

Communicator Communicator::of(std::unique_ptr<CommunicatorHandle> handle) {
  return Communicator(std::move(handle));
}

Communicator Communicator::world() {
  if (!mpi_is_running()) throw MpiError("MPI_COMM_WORLD: MPI is not running; make a Session first");
  return Communicator(std::make_unique<CommunicatorHandle>(MPI_COMM_WORLD, false));
}

Communicator Communicator::split(int color, int key) const {
  if (!handle_) return self();
  if (!mpi_is_running()) throw MpiError("MPI_Comm_split: MPI has ended");
  auto part = std::make_unique<CommunicatorHandle>(MPI_COMM_NULL, true);
  check_mpi(MPI_Comm_split(handle_->comm, color, key, &part->comm), "MPI_Comm_split");
  Communicator group = Communicator(std::move(part)).with_board_of(*this);
  if (handle_->pretends)
    group.pretend_on(handle_->nodes->node_of[at(rank_)]);
  else
    group.learn_nodes();  // now, and not in the first exchange, which may be timed
  return group;
}

Communicator Communicator::split_by_node() const {
  if (!handle_) return self();
  auto part = std::make_unique<CommunicatorHandle>(MPI_COMM_NULL, true);
  check_mpi(MPI_Comm_split_type(handle_->comm, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part->comm),
            "MPI_Comm_split_type");
  part->knows_nodes = part->on_one_node = true;
  return Communicator(std::move(part)).with_board_of(*this);
}

void Communicator::learn_nodes() const {
  if (size_ == 1 || handle_->knows_nodes) return;
  const Traffic before = traffic_;  // none of this is an exchange
  handle_->on_one_node = split_by_node().size() == size_;
  if (!handle_->on_one_node) handle_->nodes = find_nodes(*this);
  handle_->knows_nodes = true;
  traffic_ = before;
}

const NodeMap* Communicator::nodes() const {
  return handle_ && handle_->nodes && !handle_->on_one_node ? &*handle_->nodes : nullptr;
}

void Communicator::pretend_nodes(Index nodes) {
  if (size_ > 1) pretend_on(rank_ * std::min<Index>(nodes, size_) / size_);
}

void Communicator::pretend_on(std::int64_t my_node) {
  if (size_ == 1) return;
  const Traffic before = traffic_;
  NodeMap map = node_map_of(all_gather(std::span(&my_node, 1)));
  traffic_ = before;
  handle_->knows_nodes = handle_->pretends = true;
  handle_->on_one_node = map.nodes() == 1;
  handle_->nodes = std::move(map);
}

void Communicator::report_to(PositionBoard& board) {
  if (!handle_) return;
  board_ = &board;
  MPI_Group mine = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(handle_->comm, &mine), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> ranks(at(size_)), in_world(at(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  check_mpi(MPI_Group_translate_ranks(mine, size_, ranks.data(), world, in_world.data()),
            "MPI_Group_translate_ranks");
  world_ranks_.assign(in_world.begin(), in_world.end());
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
}

Communicator Communicator::with_board_of(const Communicator& whole) && {
  if (whole.board_ != nullptr) report_to(*whole.board_);
  return std::move(*this);
}

Communicator::Call Communicator::waiting_in(const char* name, Index rank) const {
  return {board_, name, shown_rank(rank)};
}

Communicator::Call Communicator::call(const char* name, Index message_bytes, Index rank) const {
  count_call(message_bytes);
  return waiting_in(name, rank);
}

void Communicator::barrier() const {
  if (size_ == 1) return;
  const Call in = call("MPI_Barrier", 0);
  check_mpi(MPI_Barrier(handle_->comm), "MPI_Barrier");
}

namespace {

template <typename T>
std::vector<T> gather_everywhere(const CommunicatorHandle* handle, int size, std::span<const T> mine,
                                 MPI_Datatype type) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(size));
  if (size == 1) {
    std::copy(mine.begin(), mine.end(), all.begin());
  } else {
    const int count = mpi_count(static_cast<Index>(mine.size()));
    check_mpi(MPI_Allgather(mine.data(), count, type, all.data(), count, type, handle->comm),
              "MPI_Allgather");
  }
  return all;
}

}  // namespace

std::vector<std::int64_t> Communicator::all_gather(std::span<const std::int64_t> mine) const {
  const Call in = call("MPI_Allgather", static_cast<Index>(mine.size_bytes()) * (size_ - 1));
  return gather_everywhere(handle_.get(), size_, mine, MPI_INT64_T);
}

std::vector<double> Communicator::all_gather(std::span<const double> mine) const {
  const Call in = call("MPI_Allgather", static_cast<Index>(mine.size_bytes()) * (size_ - 1));
  return gather_everywhere(handle_.get(), size_, mine, MPI_DOUBLE);
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine) const {
  if (size_ == 1) return {mine};
  const auto length = static_cast<std::int64_t>(mine.size());
  const std::vector<Index> lengths = all_gather(std::span(&length, 1));
  const std::vector<Index> offsets = offsets_of(lengths);
  if (offsets.back() == 0) return std::vector<std::string>(at(size_));
  std::string all(at(offsets.back()), '\0');
  const Call in = call("MPI_Allgatherv", length * (size_ - 1));
  check_mpi(MPI_Allgatherv(mine.data(), mpi_count(length), MPI_CHAR, all.data(), mpi_counts(lengths).data(),
                           mpi_counts(offsets).data(), MPI_CHAR, handle_->comm),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(all.substr(at(offsets[r]), at(lengths[r])));
  return texts;
}

void Communicator::all_sum(std::span<std::int64_t> values) const {
  if (size_ == 1) return;
  const Call in = call("MPI_Allreduce", static_cast<Index>(values.size_bytes()) * (size_ - 1));
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(static_cast<Index>(values.size())),
                          MPI_INT64_T, MPI_SUM, handle_->comm),
            "MPI_Allreduce");
}

void Communicator::sum_before(std::span<std::int64_t> values) const {
  if (size_ > 1) {
    const Call in = call("MPI_Exscan", static_cast<Index>(values.size_bytes()) * (size_ - 1 - rank_));
    check_mpi(MPI_Exscan(MPI_IN_PLACE, values.data(), mpi_count(static_cast<Index>(values.size())),
                         MPI_INT64_T, MPI_SUM, handle_->comm),
              "MPI_Exscan");
  }
  if (rank_ == 0) std::ranges::fill(values, 0);  // which MPI leaves undefined
}

void Communicator::all_sum(std::span<double> values) const {
  if (size_ == 1) return;
  const std::vector<double> all = all_gather(values);
  const auto n = static_cast<Index>(values.size());
  for (Index i = 0; i < n; ++i)
    values[at(i)] = tree_sum(0, size_, [&](Index rank) { return all[at(rank * n + i)]; });
}

double Communicator::all_max(double value) const {
  const std::vector<double> all = all_gather(std::span<const double>(&value, 1));
  const bool unknown = std::any_of(all.begin(), all.end(), [](double each) { return std::isnan(each); });
  return unknown ? std::nan("") : *std::max_element(all.begin(), all.end());
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) const {
  if (size_ == 1) return;
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  if (rank_ == root) count_call(static_cast<Index>(bytes.size()) * (size_ - 1));
  const Call in = waiting_in("MPI_Bcast", rank_ == root ? -1 : root);
  for (std::size_t done = 0; done < bytes.size(); done += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes.size() - done);
    check_mpi(MPI_Bcast(bytes.data() + done, static_cast<int>(piece), MPI_BYTE, root, handle_->comm),
              "MPI_Bcast");
  }
}

void Communicator::broadcast(std::span<float> values, int root) const {
  broadcast(std::as_writable_bytes(values), root);
}

void Communicator::count_call(Index message_bytes) const {
  if (size_ == 1) return;
  traffic_.message_bytes += message_bytes;
  ++traffic_.calls;
}

}  // namespace moeloom
