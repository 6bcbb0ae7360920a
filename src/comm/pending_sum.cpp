#include "comm/pending_sum.hpp"

#include <utility>

#include "mpi_call.hpp"

namespace moeloom {

struct PendingSum::Request {
  MPI_Request mpi = MPI_REQUEST_NULL;
};

PendingSum::PendingSum(const Communicator& ranks, std::vector<std::int64_t> values)
    : ranks_(&ranks), values_(std::move(values)) {
  if (ranks.size() == 1) return;
  ranks.count_call(static_cast<Index>(values_.size() * sizeof(std::int64_t)) * (ranks.size() - 1));
  request_ = std::make_unique<Request>();
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values_.data(), mpi_count(std::ssize(values_)), MPI_INT64_T, MPI_SUM,
                           ranks.handle_->comm, &request_->mpi),
            "MPI_Iallreduce");
}

PendingSum::~PendingSum() {
  if (request_ && mpi_is_running()) MPI_Wait(&request_->mpi, MPI_STATUS_IGNORE);
}

std::vector<std::int64_t> PendingSum::finish() {
  if (request_) {
    const auto in = ranks_->waiting_in("MPI_Wait");
    check_mpi(MPI_Wait(&request_->mpi, MPI_STATUS_IGNORE), "MPI_Wait");
  }
  request_.reset();
  return std::move(values_);
}

}  // namespace moeloom
