// A sum over ranks that is under way while its ranks do something else.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace moeloom {

/// Collective over the ranks: all begin with as many values, in the same place among their collectives. MPI
/// moves it in its own calls alone. Throws MpiError.
class PendingSum {
 public:
  PendingSum(const Communicator& ranks, std::vector<std::int64_t> values);
  /// Waits, if nobody has asked for the sum.
  ~PendingSum();
  PendingSum(const PendingSum&) = delete;
  PendingSum& operator=(const PendingSum&) = delete;

  /// Waits for values[i], the sum over ranks, exact. Once.
  std::vector<std::int64_t> finish();

 private:
  struct Request;

  const Communicator* ranks_;
  std::vector<std::int64_t> values_;
  std::unique_ptr<Request> request_;  // none: finished
};

}  // namespace moeloom
