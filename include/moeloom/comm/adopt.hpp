// A communicator of a program that started MPI itself. moeloom.hpp leaves it out, because it needs <mpi.h>.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <mpi.h>

namespace moeloom {

/// The ranks of `comm`, by MPI_Comm_dup: no message of the library meets one of the caller's, and `comm`
/// stays as it was. MPI has to run, at MPI_THREAD_FUNNELED or more; only the thread that MPI calls main may
/// call the library, and what is made of this communicator goes before MPI_Finalize. Collective over `comm`;
/// throws MpiError.
Communicator adopt(MPI_Comm comm);

}  // namespace moeloom
