// What the program answers; launch/README.md has the table.
#pragma once

#include "moeloom/base/errors.hpp"

namespace moeloom {

/// An option is wrong, or what was asked for cannot be done.
inline constexpr int kFailedExitCode = 1;
/// A file is missing, damaged or not what it should be (EX_DATAERR of sysexits.h).
inline constexpr int kDataExitCode = 65;
/// A call of MPI failed: another rank, its host or a link is gone (EX_UNAVAILABLE).
inline constexpr int kMpiExitCode = 69;
/// A number has changed in memory or on the way (EX_SOFTWARE): --check-replicas, --check-steps, counts of
/// rows.
inline constexpr int kCorruptExitCode = 70;
/// The disk is full, read-only or gone (EX_IOERR): also of a run whose last checkpoint or another result is
/// missing.
inline constexpr int kDiskExitCode = 74;
/// A run stopped in order, with a checkpoint, because it was told to (EX_TEMPFAIL); start it again with
/// --resume.
inline constexpr int kStoppedExitCode = 75;
/// A job was ended because nothing moved; start it again with --resume.
inline constexpr int kStalledExitCode = 76;

inline int exit_code_of(const std::exception& error) {
  switch (cause_of(error)) {
    case Cause::kRequest:
      return kFailedExitCode;
    case Cause::kData:
      return kDataExitCode;
    case Cause::kDisk:
      return kDiskExitCode;
    case Cause::kMpi:
      return kMpiExitCode;
    case Cause::kCorrupt:
      break;
  }
  return kCorruptExitCode;
}

}  // namespace moeloom
