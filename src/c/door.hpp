// Where the ranks of a group meet at the begin of every collective call: all learn whether they make the same
// call, who could not, and who did not come. So nobody waits in a call that others do not make.
#pragma once

#include "comm/meeting.hpp"
#include "moeloom/c/moeloom.h"

#include <array>
#include <atomic>
#include <string>
#include <vector>

namespace moeloom::c {

/// What a rank is about to do, as a text that goes on after "rank 0 is in".
struct Call {
  std::string what;                   // "the forward of layer 3"; the first 47 bytes count
  std::array<Index, 2> numbers = {};  // of which all ranks learn the largest
  // " of forward 12", what this group's ranks have in common and their row need not; 47 count
  std::string of = {};
};

/// Does not move.
class Door {
 public:
  /// names [size]: of the ranks in texts, of `all` that the job's mesh has. `ranks` must outlive it.
  Door(const Communicator& ranks, std::vector<Index> names, Index all);

  /// Collective. Throws Refusal ML_MPI where ranks make different calls, on all of them; where one did not
  /// come in time, on who waited; and at once ever after.
  void meet(const Call& call);
  /// The same, and where any rank has an error all throw a Refusal with the texts and their ranks, of the
  /// lowest such rank's status.
  void meet(const Call& call, ml_status status, const std::string& error);
  /// Throws a Refusal with this text, as every meeting from now on.
  [[noreturn]] void break_off(std::string text, ml_status status = ML_MPI);

  /// Of Call::numbers at the last meeting, over the ranks.
  const std::array<Index, 2>& largest() const { return largest_; }
  const std::vector<Index>& names() const { return names_; }
  Index all() const { return all_; }
  double timeout() const { return timeout_; }
  void set_timeout(double seconds) { timeout_ = seconds; }
  /// Who does not come may wait for somebody at another door before.
  void set_behind_another(bool is) { behind_another_ = is; }

 private:
  struct Told;
  /// -> the status of the lowest rank that has an error, or ML_OK.
  ml_status exchange(const Call& call, ml_status status);
  Told told_by(Index rank) const;
  std::string different_calls() const;
  std::string missing_text(const Call& call, const std::vector<Index>& missing) const;

  const Communicator* ranks_;
  Meeting meeting_;
  std::vector<Index> names_;
  Index all_;
  std::atomic<double> timeout_ = 0;  // which may be set beside a meeting
  bool behind_another_ = false;
  std::int64_t calls_ = 0;
  std::array<Index, 2> largest_ = {};
  std::string broken_ = {};  // why there is no other meeting
};

}  // namespace moeloom::c
