#include "moeloom/comm/session.hpp"

#include "comm/adopt_at.hpp"

#include <array>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>

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

using Clock = std::chrono::steady_clock;

/// S, or what else the kernel says of it in the field behind its name; a thread that is gone sleeps.
bool sleeps(const std::filesystem::path& thread) {
  std::ifstream file(thread / "stat");
  std::string line;
  if (!std::getline(file, line)) return true;
  const auto name_ends = line.rfind(')');
  return name_ends == std::string::npos || line.compare(name_ends, 3, ") S") == 0;
}

/// Also where it cannot be looked at.
bool has_nothing_to_do(pid_t process) {
  std::error_code failed;
  const auto threads = "/proc/" + std::to_string(process) + "/task";
  for (std::filesystem::directory_iterator thread(threads, failed), end; !failed && thread != end;
       thread.increment(failed))
    if (!sleeps(thread->path())) return false;
  return true;
}

/// MPI_Finalize. Under load the launcher may not answer within the two seconds that PMIx waits for it there;
/// a rank that then ends is, to the launcher, one that never finalized, and the job that ended well is said
/// to have ended improperly, with exit code 1. So such a rank stays until every thread of the launcher
/// sleeps: then it has read what it was sent. Looked at is the parent; where a shell stands between, it
/// sleeps, and nothing is mended. Ten seconds at most, because a parent may be another, and busy.
void finalize_heard_by_launcher() {
  constexpr auto kNearlyAllThatPmixWaits = std::chrono::milliseconds(1900);
  const pid_t launcher = getppid();
  const auto began = Clock::now();
  MPI_Finalize();
  const auto returned = Clock::now();
  if (returned - began < kNearlyAllThatPmixWaits) return;
  // One look sees one thread after another, and a thread may have woken one that was seen asleep.
  for (int looks_in_a_row = 0;
       looks_in_a_row < 3 && getppid() == launcher && Clock::now() - returned < std::chrono::seconds(10);) {
    looks_in_a_row = has_nothing_to_do(launcher) ? looks_in_a_row + 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
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
  if (mpi_is_running() && std::uncaught_exceptions() == 0) finalize_heard_by_launcher();
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
