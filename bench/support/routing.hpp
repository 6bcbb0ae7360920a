// Tokens whose router chooses the experts that a benchmark wants: the router weight is the identity on a
// token's first E values, which hold the logits.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <stdexcept>
#include <string>

namespace moeloom::bench {

/// random: whatever a random router chooses. balanced: every expert gets as many rows. hot: expert 0 gets
/// half of all rows, or where a token has more than two choices a row of every token; the others share the
/// rest evenly.
enum class Routing { kRandom, kBalanced, kHot };

inline Routing routing_named(const std::string& name) {
  if (name == "random") return Routing::kRandom;
  if (name == "balanced") return Routing::kBalanced;
  if (name == "hot") return Routing::kHot;
  throw std::invalid_argument("unknown routing \"" + name + "\"; valid: random, balanced, hot");
}

/// The expert of choice k of a token, which no other choice of it has; top_k < num_experts for kHot.
inline Index chosen_expert(Routing routing, Index token, Index k, Index top_k, Index num_experts) {
  if (routing == Routing::kBalanced) return (token * top_k + k) % num_experts;
  const bool has_hot = top_k > 1 || token % 2 == 0;
  if (k == 0 && has_hot) return 0;
  return 1 + (token * top_k + k) % (num_experts - 1);
}

/// The weight [E, D] of a router that reads logits.
inline void read_logits(MatrixView router) {
  require(router.cols >= router.rows, "a chosen routing needs a hidden size of at least the experts");
  fill(router, 0.0f);
  for (Index expert = 0; expert < router.rows; ++expert) router(expert, expert) = 1.0f;
}

/// Puts the logits of the routing into tokens [T, D], of which `first` is the number of the first.
inline void write_logits(Routing routing, Index first, Index top_k, Index num_experts, MatrixView tokens) {
  for (Index t = 0; t < tokens.rows; ++t) {
    for (Index expert = 0; expert < num_experts; ++expert) tokens(t, expert) = -4.0f;
    for (Index k = 0; k < top_k; ++k)
      tokens(t, chosen_expert(routing, first + t, k, top_k, num_experts)) = 4.0f - static_cast<float>(k) / 8;
  }
}

}  // namespace moeloom::bench
