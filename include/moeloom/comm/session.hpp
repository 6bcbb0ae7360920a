// MPI for the lifetime of main, for a program that does not start MPI itself (else comm/adopt.hpp).
#pragma once

namespace moeloom {

/// What MPI is started with. kOne: MPI_THREAD_SINGLE, for a program whose ranks have one thread each, as a
/// simulator of MPI asks. kByTurns: MPI_THREAD_SERIALIZED, for a program that calls the library from one
/// thread after another, as interpreters do.
enum class MpiThreads { kSeveral, kOne, kByTurns };

/// MPI_Init_thread and MPI_Finalize. One a process, ever: MPI cannot be started again. kSeveral asks for
/// MPI_THREAD_FUNNELED: the thread that made it is the only one that may call the library. Errors on
/// MPI_COMM_WORLD return (MPI_ERRORS_RETURN) and become MpiError. All communicators have to end before it
/// does. If it is destroyed by an exception in flight it does not finalize, because that could wait for other
/// ranks.
class Session {
 public:
  /// argc, argv: main's. Throws MpiError where MPI was started before, or does not allow threads. Every rank
  /// of the job makes one.
  Session(int& argc, char**& argv, MpiThreads threads = MpiThreads::kSeveral);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

/// Ends every rank of the job with `exit_code` (MPI_Abort on MPI_COMM_WORLD); returns only where MPI is not
/// running. Of this rank alone: what main does with an error that not every rank has met.
void abort_all_ranks(int exit_code);

/// "Open MPI v4.1.4, ..." as the MPI library reports itself; also before MPI is started.
const char* mpi_library_version();

}  // namespace moeloom
