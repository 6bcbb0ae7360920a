// Where numbers stopped being finite, for the message that ends a run.
//
// All are collective over `world` and give the same text on every rank: "NAME on rank 1", "NAME, expert 5 on
// ranks 2,3", or nothing. They read what a step left behind, so a step in which all is well pays nothing.
#pragma once

#include "moeloom/base/index.hpp"

#include <string>

namespace moeloom {

class Communicator;
class Decoder;
class ParameterStore;

/// "the output of layer L" (or "the final norm") of the last forward, the first on any rank, and the ranks
/// whose own tokens met it there.
std::string first_non_finite_output(const Decoder& decoder, const Communicator& world);

/// The first parameter in the order of a backward pass, head first and embedding last, of which a rank's own
/// gradient is not finite, and the ranks that made it so. Only before reduce_gradients(), which adds up the
/// ranks'.
std::string first_non_finite_gradient(const ParameterStore& store, const Communicator& world);

/// The same of gradients that are dropped as backward completes them (ShardedDense).
class GradientSearch {
 public:
  /// The store must outlive it.
  explicit GradientSearch(const ParameterStore& store) : store_(store) {}
  /// While they are there, gradients of a part of a backward.
  void look_at(Index part);
  std::string first(const Communicator& world) const;

 private:
  const ParameterStore& store_;
  Index place_ = -1;  // of the first found, from the end of the store; -1: none
  Index expert_ = -1;
};

/// The first parameter in the order of a forward pass of which a weight is not finite, and the ranks that
/// hold it.
std::string first_non_finite_weight(const ParameterStore& store, const Communicator& world);

}  // namespace moeloom
