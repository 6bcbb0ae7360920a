#include "watch/watcher.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/exit_code.hpp"
#include "watch/watch_rank.hpp"

namespace moeloom {

struct Watcher::Shared {
  PositionBoard board;
  WatchOrder order;
};

namespace {

/// What ends a rank from outside, whatever call it is in.
const int kEndSignal = SIGRTMIN + 9;

void end_now(int) {
  _exit(kStalledExitCode);
}

void do_nothing(int) {}

/// A terminal's and a scheduler's signals are for the rank. Its end comes as a signal too, so that the
/// watcher looks at once.
void hear_of_nothing_but_the_end() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGTSTP, SIGQUIT})
    std::signal(signal, SIG_IGN);
  struct sigaction action {};
  action.sa_handler = do_nothing;  // without SA_RESTART: it cuts sleep short
  sigaction(kEndSignal, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, kEndSignal);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

/// The memory of the command line, which the kernel shows.
std::span<char> words_of(std::span<char* const> argv) {
  if (argv.empty()) return {};
  return {argv.front(), argv.back() + std::strlen(argv.back())};
}

/// Of a rank that may be stopped, or stuck in the kernel.
void end_rank(pid_t rank) {
  if (getppid() != rank) return;
  kill(rank, kEndSignal);
  for (int tenths = 0; tenths < 30; ++tenths) {
    usleep(100'000);
    if (getppid() != rank) return;
  }
  kill(rank, SIGKILL);
}

}  // namespace

Watcher::Watcher(std::span<char* const> argv) {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(std::string("memory of a watcher: ") + std::strerror(errno));
  shared_ = new (memory) Shared;
  std::signal(kEndSignal, do_nothing);  // to the child it only means to look
  const pid_t rank = getpid();
  child_ = fork();
  if (child_ != 0) std::signal(kEndSignal, end_now);
  if (child_ < 0)
    std::cerr << std::string("[warning] nobody watches this rank: no process for that: ") +
                     std::strerror(errno) + "\n";
  if (child_ != 0) return;
  prctl(PR_SET_NAME, "moeloom-watch");
  hear_of_nothing_but_the_end();
  try {
    watch_rank(shared_->board, shared_->order, rank, words_of(argv), [rank] { end_rank(rank); });
  } catch (const std::exception&) {
    // A watcher that cannot watch must not end what runs.
  }
  _exit(0);
}

Watcher::~Watcher() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  munmap(shared_, sizeof(Shared));
}

PositionBoard& Watcher::board() {
  return shared_->board;
}

void Watcher::watch(const StallSettings& settings) {
  said_ = settings.seconds;
  WatchOrder& order = shared_->order;
  order.rank = settings.rank;
  order.world = settings.world;
  const std::string folder = std::filesystem::absolute(settings.run).string();
  if (folder.size() >= order.folder.size()) return;  // no system opens such a path either
  order.folder.fill('\0');
  std::ranges::copy(folder, order.folder.begin());
  gethostname(order.host.data(), order.host.size() - 1);
  const StallLimits limits = stall_limits(said_, std::nullopt);
  order.step_seconds = limits.step;
  order.file_seconds = limits.files;
  order.start_seconds = limits.start;
  ++order.orders;
}

void Watcher::settle() {
  WatchOrder& order = shared_->order;
  order.settled = true;
  if (child_ > 0) kill(child_, kEndSignal);  // it sleeps
  for (int waited = 0; waited < 1000 && !order.noted; ++waited) usleep(1000);
}

void Watcher::step_took(double seconds) {
  WatchOrder& order = shared_->order;
  order.longest_step = std::max(order.longest_step.load(), seconds);
  order.step_seconds = stall_limits(said_, order.longest_step.load()).step;
}

StallLimits stall_limits(std::optional<double> said, std::optional<double> longest_step) {
  constexpr double kLeast = 30, kBeforeTheFirst = 300, kFiles = 1800, kStart = 600;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (said && !(*said > 0)) return {.step = kNever, .files = kNever, .start = kNever};
  if (said) return {.step = *said, .files = 10 * *said, .start = 10 * *said};
  const double step = longest_step ? std::max(kLeast, 10 * *longest_step) : kBeforeTheFirst;
  return {.step = step, .files = kFiles, .start = kStart};
}

}  // namespace moeloom
