#include "moeloom/comm/messages.hpp"

#include <limits>

#include "mpi_call.hpp"

namespace moeloom {
namespace {

constexpr int kTag = 1;

/// start(count, type) of so many floats, whose number need not fit an int. The signature is the same either
/// way, and few messages pay for a type of their own.
template <typename Start>
void of_floats(Index count, Start start) {
  if (count <= std::numeric_limits<int>::max()) return start(static_cast<int>(count), MPI_FLOAT);
  start(1, StretchType(0, count).get());  // MPI keeps a type that was freed until its messages are done
}

void wait_for_all(std::span<MPI_Request> requests) {
  if (requests.empty()) return;  // nor is MPI needed by a rank alone
  check_mpi(MPI_Waitall(mpi_count(std::ssize(requests)), requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall");
}

/// Whether one of them is still under way, about which MPI was asked and so saw to all of them.
bool one_travels(std::span<const MPI_Request> requests) {
  for (const MPI_Request request : requests) {
    int done = 1;
    if (request != MPI_REQUEST_NULL)
      check_mpi(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    if (done == 0) return true;
  }
  return false;
}

}  // namespace

struct Messages::Requests {
  std::vector<MPI_Request> receives, sends;

  /// Of an exchange that an exception ended: nobody waits for these any more, and the job is about to end.
  ~Requests() {
    for (MPI_Request& request : receives)
      if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS) MPI_Request_free(&request);
    for (MPI_Request& request : sends)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
};

Messages::Messages(const Communicator& ranks) : ranks_(&ranks), requests_(std::make_unique<Requests>()) {}
Messages::~Messages() = default;

void Messages::receive(int from, std::span<float> into) {
  MPI_Request& request = requests_->receives.emplace_back(MPI_REQUEST_NULL);
  if (into.empty()) return;
  require(ranks_->handle_ != nullptr, "a rank alone has nobody to hear from");
  of_floats(std::ssize(into), [&](int count, MPI_Datatype type) {
    check_mpi(MPI_Irecv(into.data(), count, type, from, kTag, ranks_->handle_->comm, &request), "MPI_Irecv");
  });
}

void Messages::send(int to, std::span<const float> values) {
  if (values.empty()) return;
  require(ranks_->handle_ != nullptr, "a rank alone has nobody to write to");
  ranks_->count_call(static_cast<Index>(values.size_bytes()));
  MPI_Request& request = requests_->sends.emplace_back(MPI_REQUEST_NULL);
  of_floats(std::ssize(values), [&](int count, MPI_Datatype type) {
    check_mpi(MPI_Isend(values.data(), count, type, to, kTag, ranks_->handle_->comm, &request), "MPI_Isend");
  });
}

std::optional<Index> Messages::next_arrival() {
  if (requests_->receives.empty()) return std::nullopt;
  int number = MPI_UNDEFINED;
  check_mpi(MPI_Waitany(mpi_count(std::ssize(requests_->receives)), requests_->receives.data(), &number,
                        MPI_STATUS_IGNORE),
            "MPI_Waitany");
  return number == MPI_UNDEFINED ? std::nullopt : std::optional<Index>(number);
}

void Messages::wait_for(Index first, Index count) {
  wait_for_all(std::span(requests_->receives).subspan(at(first), at(count)));
}

void Messages::progress() {
  if (!one_travels(requests_->receives)) one_travels(requests_->sends);
}

void Messages::finish() {
  wait_for_all(requests_->receives);
  wait_for_all(requests_->sends);
  requests_->receives.clear();
  requests_->sends.clear();
}

}  // namespace moeloom
