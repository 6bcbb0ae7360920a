#include "moeloom/run/stop_signals.hpp"

#include "moeloom/base/errors.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moeloom {
namespace {

constexpr int kInterruptedExitCode = 128 + SIGINT;  // as a shell has it
std::atomic<int> interrupts{0};                     // that have come
std::atomic<bool> interrupted{false};               // and were not taken

/// The second leaves whatever this process is in: a save, a step, or a wait for a rank that is gone.
void count_interrupt(int) {
  if (interrupts.fetch_add(1) > 0) _exit(kInterruptedExitCode);
  interrupted = true;
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

/// OpenBLAS starts threads before main, which hold nothing and may be the ones that a signal of the process
/// meets: they pass it on to the first thread, whose number is the process's, where it waits to be taken. If
/// that thread does not hold it any more, it is the default's.
void pass_on(int signal) {
  const int error = errno;
  if (gettid() == getpid()) std::signal(signal, SIG_DFL);
  syscall(SYS_tgkill, getpid(), getpid(), signal);
  errno = error;
}

}  // namespace

void hold_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    struct sigaction action {};
    action.sa_handler = pass_on;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  struct sigaction action {};
  action.sa_handler = count_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

StopSignals::StopSignals() {
  hold_stop_signals();
  const sigset_t set = stop_signals();
  descriptor_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) throw Error(std::string("signalfd: ") + std::strerror(errno));
}

StopSignals::~StopSignals() {
  close(descriptor_);
}

int StopSignals::take() {
  if (interrupted.exchange(false)) return SIGINT;
  signalfd_siginfo info{};
  return read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

std::string_view signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGINT:
      return "SIGINT";
    default:
      return "a signal";
  }
}

}  // namespace moeloom
