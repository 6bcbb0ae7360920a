#include "moeloom/comm/communicator.hpp"

#include "moeloom/tensor/tree_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "mpi_call.hpp"

namespace moeloom {

struct CommunicatorHandle {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = true;
  CommunicatorHandle(MPI_Comm c, bool o) : comm(c), owned(o) {}
  CommunicatorHandle(const CommunicatorHandle&) = delete;
  CommunicatorHandle& operator=(const CommunicatorHandle&) = delete;
  ~CommunicatorHandle() {
    if (owned && comm != MPI_COMM_NULL && mpi_is_running()) MPI_Comm_free(&comm);
  }
};

namespace {

std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

std::vector<int> int_counts(std::span<const Index> counts) {
  std::vector<int> narrowed(counts.size());
  std::transform(counts.begin(), counts.end(), narrowed.begin(), mpi_count);
  return narrowed;
}

std::vector<int> int_offsets(std::span<const Index> counts) {
  std::vector<Index> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), Index{0});
  return int_counts(offsets);
}

Index total(std::span<const Index> counts) {
  return std::reduce(counts.begin(), counts.end(), Index{0});
}

/// The largest block of elements in which every count and every offset is whole, so that stretches of more
/// than 2^31 elements travel under int counts.
Index common_unit(std::span<const Index> counts) {
  constexpr Index kLargestInt = 1 << 30;
  if (total(counts) <= kLargestInt) return 1;
  Index unit = 0;
  for (const Index count : counts) unit = std::gcd(unit, count);
  return std::max<Index>(unit, 1);
}

std::vector<Index> divided(std::span<const Index> counts, Index unit) {
  std::vector<Index> units(counts.begin(), counts.end());
  for (Index& count : units) count /= unit;
  return units;
}

}  // namespace

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

Communicator Communicator::world() {
  if (!mpi_is_running()) throw MpiError("MPI_COMM_WORLD: MPI is not running; make a Session first");
  return Communicator(std::make_unique<CommunicatorHandle>(MPI_COMM_WORLD, false));
}

Communicator Communicator::split(int color, int key) const {
  if (!handle_) return self();
  auto part = std::make_unique<CommunicatorHandle>(MPI_COMM_NULL, true);
  check_mpi(MPI_Comm_split(handle_->comm, color, key, &part->comm), "MPI_Comm_split");
  return Communicator(std::move(part));
}

Communicator Communicator::split_by_node() const {
  if (!handle_) return self();
  auto part = std::make_unique<CommunicatorHandle>(MPI_COMM_NULL, true);
  check_mpi(MPI_Comm_split_type(handle_->comm, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part->comm),
            "MPI_Comm_split_type");
  return Communicator(std::move(part));
}

void Communicator::barrier() const {
  if (size_ == 1) return;
  count_call(0);
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
  count_call(static_cast<Index>(mine.size_bytes()) * (size_ - 1));
  return gather_everywhere(handle_.get(), size_, mine, MPI_INT64_T);
}

std::vector<double> Communicator::all_gather(std::span<const double> mine) const {
  count_call(static_cast<Index>(mine.size_bytes()) * (size_ - 1));
  return gather_everywhere(handle_.get(), size_, mine, MPI_DOUBLE);
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine) const {
  if (size_ == 1) return {mine};
  const auto length = static_cast<std::int64_t>(mine.size());
  const std::vector<Index> lengths = all_gather(std::span(&length, 1));
  if (total(lengths) == 0) return std::vector<std::string>(at(size_));
  const std::vector<int> counts = int_counts(lengths);
  const std::vector<int> offsets = int_offsets(lengths);
  std::string all(at(total(lengths)), '\0');
  count_call(length * (size_ - 1));
  check_mpi(MPI_Allgatherv(mine.data(), mpi_count(length), MPI_CHAR, all.data(), counts.data(),
                           offsets.data(), MPI_CHAR, handle_->comm),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]), at(lengths[r])));
  return texts;
}

void Communicator::all_sum(std::span<std::int64_t> values) const {
  if (size_ == 1) return;
  count_call(static_cast<Index>(values.size_bytes()) * (size_ - 1));
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), mpi_count(static_cast<Index>(values.size())),
                          MPI_INT64_T, MPI_SUM, handle_->comm),
            "MPI_Allreduce");
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
  for (std::size_t done = 0; done < bytes.size(); done += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes.size() - done);
    check_mpi(MPI_Bcast(bytes.data() + done, static_cast<int>(piece), MPI_BYTE, root, handle_->comm),
              "MPI_Bcast");
  }
}

void Communicator::broadcast(std::span<float> values, int root) const {
  broadcast(std::as_writable_bytes(values), root);
}

std::string Communicator::broadcast_text(const std::string& text, int root) const {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  std::string received = text;
  received.resize(at(length));
  broadcast(std::as_writable_bytes(std::span(received)), root);
  return received;
}

void Communicator::all_to_all(std::span<const std::int64_t> sent, std::span<std::int64_t> received) const {
  require(sent.size() == received.size() && sent.size() % at(size_) == 0,
          "all_to_all needs equal blocks for every rank");
  if (size_ == 1) {
    std::copy(sent.begin(), sent.end(), received.begin());
    return;
  }
  const Index block = static_cast<Index>(sent.size()) / size_;
  count_call(block * (size_ - 1) * static_cast<Index>(sizeof(std::int64_t)));
  check_mpi(MPI_Alltoall(sent.data(), mpi_count(block), MPI_INT64_T, received.data(), mpi_count(block),
                         MPI_INT64_T, handle_->comm),
            "MPI_Alltoall");
}

void Communicator::all_to_all_rows(ConstMatrixView rows, std::span<const Index> sent_per_rank,
                                   MatrixView received, std::span<const Index> received_per_rank) const {
  require(
      static_cast<int>(sent_per_rank.size()) == size_ && static_cast<int>(received_per_rank.size()) == size_,
      "all_to_all_rows needs one count a rank");
  require(total(sent_per_rank) == rows.rows && total(received_per_rank) == received.rows,
          "all_to_all_rows: the counts must add up to the rows");
  require(rows.cols == received.cols && rows.contiguous() && received.contiguous(),
          "all_to_all_rows needs contiguous rows of one width");
  if (size_ == 1) {
    std::copy_n(rows.data, rows.size(), received.data);
    return;
  }
  count_call((rows.rows - sent_per_rank[at(rank_)]) * rows.cols * static_cast<Index>(sizeof(float)));
  const RowType row(rows.cols, MPI_FLOAT);
  const auto send_counts = int_counts(sent_per_rank);
  const auto send_offsets = int_offsets(sent_per_rank);
  const auto receive_counts = int_counts(received_per_rank);
  const auto receive_offsets = int_offsets(received_per_rank);
  check_mpi(MPI_Alltoallv(rows.data, send_counts.data(), send_offsets.data(), row.get(), received.data,
                          receive_counts.data(), receive_offsets.data(), row.get(), handle_->comm),
            "MPI_Alltoallv");
}

void Communicator::reduce_scatter_tree(std::span<const float> grads, std::span<const Index> counts_per_rank,
                                       std::span<float> scratch, std::span<float> shard) const {
  require(static_cast<int>(counts_per_rank.size()) == size_, "reduce_scatter_tree needs one count a rank");
  const Index mine = counts_per_rank[at(rank_)];
  require(static_cast<Index>(grads.size()) == total(counts_per_rank) &&
              static_cast<Index>(shard.size()) == mine && static_cast<Index>(scratch.size()) >= mine * size_,
          "reduce_scatter_tree: sizes must follow counts_per_rank");
  if (size_ == 1) {
    if (shard.data() != grads.data()) std::copy(grads.begin(), grads.end(), shard.begin());
    return;
  }
  const std::vector<Index> from_each(at(size_), mine);
  const ConstMatrixView sent(grads.data(), static_cast<Index>(grads.size()), 1);
  all_to_all_rows(sent, counts_per_rank, MatrixView(scratch.data(), mine * size_, 1), from_each);
  tree_sum_blocks(scratch.data(), size_, mine, mine, shard.data());
}

void Communicator::all_gather_stretches(std::span<float> values,
                                        std::span<const Index> counts_per_rank) const {
  require(static_cast<int>(counts_per_rank.size()) == size_ &&
              static_cast<Index>(values.size()) == total(counts_per_rank),
          "all_gather_stretches: sizes must follow counts_per_rank");
  if (size_ == 1) return;
  count_call(counts_per_rank[at(rank_)] * (size_ - 1) * static_cast<Index>(sizeof(float)));
  const Index unit = common_unit(counts_per_rank);
  const RowType type(unit, MPI_FLOAT);
  const auto units = divided(counts_per_rank, unit);
  const auto counts = int_counts(units);
  const auto offsets = int_offsets(units);
  check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values.data(), counts.data(), offsets.data(),
                           type.get(), handle_->comm),
            "MPI_Allgatherv");
}

void Communicator::count_call(Index bytes_sent) const {
  if (size_ == 1) return;
  traffic_.bytes_sent += bytes_sent;
  ++traffic_.calls;
}

}  // namespace moeloom
