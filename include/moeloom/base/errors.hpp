// What can go wrong, by who must answer: the caller, the person who configured the run, a file, MPI.
#pragma once

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A caller's mistake; carries the caller's file and line.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, damaged or refused by the system; names the path.
class IoError : public Error {
 public:
  using Error::Error;
};

/// An MPI call that failed; names the call, MPI's text and the rank.
class MpiError : public Error {
 public:
  using Error::Error;
};

/// A disk that is full, read-only, failing or gone.
class DiskError : public IoError {
 public:
  using IoError::IoError;
};

/// A number that has changed in memory or on the way.
class CorruptError : public Error {
 public:
  using Error::Error;
};

/// What has to change before the same command can succeed; kCorrupt: a machine.
enum class Cause { kRequest, kData, kDisk, kMpi, kCorrupt };

/// A configuration that cannot run. `what()` lists every violation, one a line.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> violations, Cause cause = Cause::kRequest);
  const std::vector<std::string>& violations() const { return violations_; }
  Cause cause() const { return cause_; }

 private:
  std::vector<std::string> violations_;
  Cause cause_;
};

/// Thrown on every rank together, after the ranks agreed that one of them failed: rank 0 alone reports it,
/// and the ranks may finalize in order, because none of them waits for another.
class AgreedError : public Error {
 public:
  explicit AgreedError(const std::string& text, Cause cause = Cause::kRequest) : Error(text), cause_(cause) {}
  Cause cause() const { return cause_; }

 private:
  Cause cause_;
};

/// kDisk for a DiskError, kData for any other IoError, kMpi for an MpiError, kCorrupt for a CorruptError,
/// what a ConfigError or an AgreedError says; else kRequest.
Cause cause_of(const std::exception& error);

/// Throws DiskError for an errno by which a disk refuses, IoError for any other: "<text>: <the system's
/// text>".
[[noreturn]] void throw_io_error(const std::string& text, int error);

/// Throws ShapeError with the caller's line unless `holds`.
void require(bool holds, std::string_view message,
             std::source_location where = std::source_location::current());

}  // namespace moeloom
