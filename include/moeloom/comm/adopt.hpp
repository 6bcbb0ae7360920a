// A communicator of a program that started MPI itself; such a program makes no Session. moeloom.hpp leaves
// this header out, because it needs <mpi.h>.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <mpi.h>

namespace moeloom {

/// The ranks of `comm`, by MPI_Comm_dup: no message of the library meets one of the caller's, and `comm`
/// stays as it was. MPI has to run, at MPI_THREAD_FUNNELED or more. Only the thread that MPI calls main may
/// call the library. Everything that is made of this communicator has to end before MPI_Finalize: what frees
/// it later leaks. Collective over `comm`. Throws MpiError: MPI does not run, or with less than FUNNELED, or
/// a call failed.
Communicator adopt(MPI_Comm comm);

}  // namespace moeloom
