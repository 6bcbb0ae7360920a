// Communicators of a program that started MPI itself, for rooms that do not know <mpi.h>.
#pragma once

#include "moeloom/comm/communicator.hpp"

namespace moeloom {

/// adopt() of the MPI_Comm at this address; null: of MPI_COMM_WORLD. Collective over it.
Communicator adopt_at(const void* comm);
/// Throws MpiError where another MPI than this library was compiled for answers its calls, as one does that a
/// program loaded before for all to see: handles would mean nothing to it.
void require_own_mpi();
/// Whether MPI was started and not yet ended, by whomever.
bool mpi_runs();

}  // namespace moeloom
