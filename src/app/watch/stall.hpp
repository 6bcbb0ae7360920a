// Which rank a job that does not move waits for, from the positions of all ranks.
#pragma once

#include "moeloom/base/position_board.hpp"
#include "moeloom/io/document.hpp"

#include <optional>
#include <string>
#include <vector>

namespace moeloom {

/// What the watcher of a rank says of it.
struct RankPosition {
  Index rank = 0;
  std::string host;
  Index process = 0;
  char state = 'R';    // of the process, as in /proc/PID/stat
  bool moves = false;  // has moved within the time allowed
  double seconds = 0;  // since it last did
  Position position;

  bool is_stopped() const { return state == 'T' || state == 't'; }
  Document to_document() const;
  /// Throws IoError for what to_document() did not make.
  static RankPosition from(const Document& document);
};

/// "step 12, micro-batch 0, layer 3, backward, experts, in MPI_Waitall for rank 1"
std::string text_of(const Position& position);

enum class StallCause {
  kNone,        // some rank moves, or all are stopped, which somebody wants: nothing to end
  kSilent,      // nothing was heard of a rank's watcher: its host is gone, or cut off
  kStopped,     // a rank's process is stopped
  kBehind,      // a rank is not as far as the others
  kAllTogether  // all wait at the same place: for a message that was lost, or a link that is down
};

struct Stall {
  StallCause cause = StallCause::kNone;
  std::vector<Index> ranks;  // that the others wait for; empty where all wait together
};

/// positions [world], none of a rank that was not heard of.
Stall find_stall(const std::vector<std::optional<RankPosition>>& positions);

/// One line: the ranks, where they are, and where the others wait.
std::string stall_text(const Stall& stall, const std::vector<std::optional<RankPosition>>& positions);

}  // namespace moeloom
