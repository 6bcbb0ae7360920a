// Waits of a simulated program for many requests, one after the other.
//
// SimGrid 3.32 makes MPI_Waitall and MPI_Waitsome of waits for any of all requests, each of which enters
// itself in a list of every request and looks for itself there: of 128 ranks that wait for 127 others, nine
// tenths of the time were spent in these lists, and 256 did not end in half an hour. Here computing takes no
// time, so the moment at which all have come is the same in whatever order they are waited for. Linked in by
// --wrap (run.sh).
#include <mpi.h>

int __wrap_MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  for (int i = 0; i < count; ++i) {
    const int code =
        MPI_Wait(&requests[i], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i]);
    if (code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

/// The first that is open, and no other.
int __wrap_MPI_Waitsome(int count, MPI_Request* requests, int* ended, int* places, MPI_Status* statuses) {
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    *ended = 1;
    places[0] = i;
    return MPI_Wait(&requests[i], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[0]);
  }
  *ended = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
