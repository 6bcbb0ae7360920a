// Communicators of a program that started MPI itself, for rooms that do not know <mpi.h>.
#pragma once

#include "moeloom/comm/communicator.hpp"

namespace moeloom {

/// adopt() of the MPI_Comm at this address; null: of MPI_COMM_WORLD. Collective over it.
Communicator adopt_at(const void* comm);
/// Whether MPI was started and not yet ended, by whomever.
bool mpi_runs();

}  // namespace moeloom
