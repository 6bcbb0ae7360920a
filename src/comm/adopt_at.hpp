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
/// Whether it was started for calls of several threads at once. It has to run.
bool mpi_is_for_several_threads();
/// Throws MpiError where it was started for another thread alone. It has to run.
void require_thread_of_mpi();

}  // namespace moeloom
