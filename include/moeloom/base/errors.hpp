// What can go wrong, by who must answer: the caller, the person who configured the run, a file, MPI.
//
// Everything the library throws of its own is an Error; beside that come std::bad_alloc and what the standard
// library throws. A function says which ranks throw: AgreedError comes on every rank alike, any other error
// may come on one rank while the others wait for it in MPI, and then the job has to end (abort_all_ranks).
#pragma once

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// The base of all; thrown as itself where no class below fits.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A caller's mistake: a shape, a range, an order of calls. what() ends with the file and line of the check
/// that failed.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, damaged or refused by the system; what() names the path.
class IoError : public Error {
 public:
  using Error::Error;
};

/// An MPI call that failed; what() names the call, MPI's text and the rank in MPI_COMM_WORLD.
class MpiError : public Error {
 public:
  using Error::Error;
};

/// A disk that is full, read-only, failing or gone: the data to be written are not at fault.
class DiskError : public IoError {
 public:
  using IoError::IoError;
};

/// A number that has changed in memory or on the way between ranks: a machine is at fault.
class CorruptError : public Error {
 public:
  using Error::Error;
};

/// What has to change before the same command can succeed: what was asked, the data, a disk, MPI or its
/// network, or (kCorrupt) a machine that changes numbers.
enum class Cause { kRequest, kData, kDisk, kMpi, kCorrupt };

/// A configuration that cannot run. what() lists every violation, one a line; violations() has them apart.
/// Thrown on every rank alike where all ranks were given the same configuration.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> violations, Cause cause = Cause::kRequest);
  const std::vector<std::string>& violations() const { return violations_; }
  Cause cause() const { return cause_; }

 private:
  std::vector<std::string> violations_;
  Cause cause_;
};

/// Thrown on every rank together, after the ranks agreed that at least one of them failed. It is enough that
/// rank 0 reports it, and the ranks may call MPI_Finalize, because none of them waits for another.
class AgreedError : public Error {
 public:
  explicit AgreedError(const std::string& text, Cause cause = Cause::kRequest) : Error(text), cause_(cause) {}
  Cause cause() const { return cause_; }

 private:
  Cause cause_;
};

/// kDisk for a DiskError, kData for any other IoError, kMpi for an MpiError, kCorrupt for a CorruptError,
/// what a ConfigError or an AgreedError carries; of a std::filesystem::filesystem_error as throw_io_error()
/// takes its number; else kRequest.
Cause cause_of(const std::exception& error);

/// Throws DiskError where `error`, a value of errno, is one by which a disk refuses (ENOSPC, EDQUOT, EROFS,
/// EFBIG, EIO, ESTALE, ENXIO, ENODEV, ENOTCONN), IoError for any other: "<text>: <the system's text>".
[[noreturn]] void throw_io_error(const std::string& text, int error);

/// Throws ShapeError("<message> (<file>:<line>)") with the caller's file and line unless `holds`.
void require(bool holds, std::string_view message,
             std::source_location where = std::source_location::current());

}  // namespace moeloom
