#include "moeloom/comm/session.hpp"

#include "comm/adopt_at.hpp"

#include <array>
#include <exception>
#include <string>
#include <string_view>

#include "mpi_call.hpp"

namespace moeloom {
namespace {

struct Level {
  int number;
  const char* name;
};

Level level_of(MpiThreads threads) {
  if (threads == MpiThreads::kOne) return {MPI_THREAD_SINGLE, "MPI_THREAD_SINGLE"};
  if (threads == MpiThreads::kByTurns) return {MPI_THREAD_SERIALIZED, "MPI_THREAD_SERIALIZED"};
  return {MPI_THREAD_FUNNELED, "MPI_THREAD_FUNNELED"};
}

}  // namespace

void require_own_mpi() {
#ifdef OPEN_MPI
  const std::string_view text = mpi_library_version();
  if (!text.starts_with("Open MPI"))
    throw MpiError("the library was compiled for Open MPI, but its calls reach \"" +
                   std::string(text.substr(0, text.find('\n'))) +
                   "\", which this process loaded before; start it without that one");
#endif
}

Session::Session(int& argc, char**& argv, MpiThreads threads) {
  require_own_mpi();
  int initialised = 0;
  MPI_Initialized(&initialised);
  // Open MPI would end the job on a second start.
  if (initialised != 0) throw MpiError("MPI_Init_thread: MPI was started before; a process has one Session");
  int provided = 0;
  const Level level = level_of(threads);
  check_mpi(MPI_Init_thread(&argc, &argv, level.number, &provided), "MPI_Init_thread");
  if (provided < level.number)
    throw MpiError(std::string("this MPI library does not allow threads (") + level.name + ")");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

Session::~Session() {
  if (mpi_is_running() && std::uncaught_exceptions() == 0) MPI_Finalize();
}

void abort_all_ranks(int exit_code) {
  if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

const char* mpi_library_version() {
  static const auto text = [] {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> buffer{};
    int length = 0;
    MPI_Get_library_version(buffer.data(), &length);
    return buffer;
  }();
  return text.data();
}

}  // namespace moeloom
