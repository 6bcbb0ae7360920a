// MPI for the lifetime of main.
#pragma once

namespace moeloom {

/// Of a rank that runs in MPI's process. kOne: parallel_for is to have one, as a simulator of MPI asks.
enum class MpiThreads { kSeveral, kOne };

/// MPI_Init_thread and MPI_Finalize. One a process. FUNNELED: parallel_for's threads never call MPI.
/// If it is destroyed by an exception in flight it does not finalize, because that could
/// wait for other ranks.
class Session {
 public:
  Session(int& argc, char**& argv, MpiThreads threads = MpiThreads::kSeveral);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

/// Ends every rank of the job with `exit_code`; returns only where MPI is not running.
void abort_all_ranks(int exit_code);

/// "Open MPI v4.1.4, ..." as the library reports itself.
const char* mpi_library_version();

}  // namespace moeloom
