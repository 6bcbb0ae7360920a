// Faults on purpose, for the tests of what a run survives: MOELOOM_FAULT=KIND:RANK:STEP:WHERE[:LAYER][,...].
#pragma once

#include "io/file_observer.hpp"
#include "moeloom/base/position_board.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

enum class FaultKind {
  kKill,        // SIGKILL
  kStop,        // SIGSTOP
  kSpin,        // computes for ever
  kSlow,        // sleeps for kSlowSeconds there, and in each of the next kSlowMoves phases
  kThrow,       // an error that the other ranks do not have
  kShortWrite,  // the next write of a file is of one byte, after which the rest is asked for
  kEnospc,      // the next write of a file is told that the disk is full
  kNan,         // in a gradient of that phase, after the step's backward
  kFlip,        // a bit of a weight of that phase
};
inline constexpr int kSlowSeconds = 2, kSlowMoves = 4;

struct Fault {
  FaultKind kind = FaultKind::kKill;
  Index rank = 0;
  Index step = 0;
  std::string where;  // a phase of a step, an activity, or a stage of a checkpoint's way to the disk
  Index layer = -1;   // any
  std::string text;

  /// Whether it strikes a rank that has just come to `position`; what is no step's, as loading and saving,
  /// has the number of the next one.
  bool strikes(const Position& position, Index next_step) const;
  /// Whether it strikes before that is done to a path of the checkpoint of its step.
  bool strikes(FileStage stage, const std::filesystem::path& path) const;
};

/// Separated by commas. None for a text that is something else.
std::optional<std::vector<Fault>> faults_from_text(std::string_view text);
/// What they may be.
std::string valid_faults();

}  // namespace moeloom
