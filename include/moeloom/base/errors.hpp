// What can go wrong, by who must answer: the caller, the person who configured the run, a file, MPI.
#pragma once

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

/// A configuration that cannot run. `what()` lists every violation, one a line.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> violations);
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

/// Thrown on every rank together, after the ranks agreed that one of them failed: rank 0 alone reports it,
/// and the ranks may finalize in order, because none of them waits for another.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Throws ShapeError with the caller's line unless `holds`.
void require(bool holds, std::string_view message,
             std::source_location where = std::source_location::current());

}  // namespace moeloom
