// The signals that ask a run to stop, kept until the run asks for them between two steps. For a program that
// wants it: nothing else in the library touches a signal. Of this process alone, no collective.
#pragma once

#include <string_view>

namespace moeloom {

/// SIGTERM, SIGUSR1 and the first SIGINT no longer end this process: they wait for StopSignals, whichever
/// thread they meet. A second SIGINT ends it at once, with exit code 130. Call it on the first thread, before
/// MPI starts.
void hold_stop_signals();

/// One a process. Where it ends, signals stay held: it is for a program whose whole work is to be stopped in
/// order.
class StopSignals {
 public:
  /// Holds them, and takes them from now on, all on the first thread. Throws Error with the system's text.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of one that has come and was not taken; 0: none. Does not wait. On the first thread.
  int take();

 private:
  int descriptor_;
};

/// "SIGTERM", "SIGUSR1", "SIGINT"; "a signal" for any other.
std::string_view signal_name(int signal);

}  // namespace moeloom
