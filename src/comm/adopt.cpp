#define OMPI_SKIP_MPICXX 1  // before <mpi.h>: without the C++ interface, which MPI 3 removed
#include "moeloom/comm/adopt.hpp"

#include "comm/adopt_at.hpp"

#include "mpi_call.hpp"

namespace moeloom {
namespace {

int thread_level() {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  return level;
}

}  // namespace

Communicator adopt(MPI_Comm comm) {
  require_own_mpi();
  if (!mpi_is_running()) throw MpiError("adopt: MPI is not running; call MPI_Init_thread first");
  if (thread_level() < MPI_THREAD_FUNNELED)
    throw MpiError(
        "adopt: MPI was started for one thread; start it by MPI_Init_thread with MPI_THREAD_FUNNELED");
  require_thread_of_mpi();
  auto handle = std::make_unique<CommunicatorHandle>(MPI_COMM_NULL, true);
  check_mpi(MPI_Comm_dup(comm, &handle->comm), "MPI_Comm_dup");
  Communicator ranks = Communicator::of(std::move(handle));
  ranks.learn_nodes();
  return ranks;
}

Communicator adopt_at(const void* comm) {
  return adopt(comm == nullptr ? MPI_COMM_WORLD : *static_cast<const MPI_Comm*>(comm));
}

bool mpi_runs() {
  return mpi_is_running();
}

bool mpi_is_for_several_threads() {
  return thread_level() >= MPI_THREAD_MULTIPLE;
}

void require_thread_of_mpi() {
  int is_main = 0;
  check_mpi(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
  if (is_main == 0 && thread_level() < MPI_THREAD_SERIALIZED)
    throw MpiError(
        "MPI is called by another thread than the one that started it, for which it has to be started with "
        "MPI_THREAD_SERIALIZED or more");
}

}  // namespace moeloom
