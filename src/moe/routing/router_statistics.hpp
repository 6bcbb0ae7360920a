// What routers did with a micro-batch, a layer at a time: how often each expert was chosen, how probable it
// was, how sure the router. The losses of balance (router_losses.hpp), their gradients, updates of biases and
// what is shown are made of it.
#pragma once

#include "moe/routing/router.hpp"
#include "moeloom/comm/communicator.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// How often each expert was chosen: integers, so that sums are exact in any order.
struct ChosenCounts {
  std::vector<std::int64_t> per_expert;  // [layers, E]
  /// The same of what the aux loss counts, where that is something else (BalanceBy::kScore, kSoftmax); else
  /// empty.
  std::vector<std::int64_t> for_balance = {};
  std::int64_t tokens = 0;     // of one layer
  std::int64_t sequences = 0;  // with a token that counts
  const std::vector<std::int64_t>& balanced() const { return for_balance.empty() ? per_expert : for_balance; }
  void add(const ChosenCounts& other);
  void sum_over(const Communicator& world);
};

/// Of one layer, summed; the parts that are no integers.
struct ProbabilitySums {
  std::vector<double> per_expert;  // [E]: of the probabilities
  double squared_log_sum_exp = 0;  // of softmax scores; else 0
  double entropy = 0;
  double sequence_losses = 0;  // E * sum_e f_e P_e of each sequence by itself
};

class RouterStatistics {
 public:
  RouterStatistics() = default;
  /// Layers that are dense are never added, and count for nothing.
  /// tokens_per_leaf: those of which reals are added up by themselves and rounded, so that what ranks and
  /// micro-batches add up has the same bits on every mesh (tensor/exact_sums.hpp); 0: no such sums.
  RouterStatistics(Index layers, Index num_experts, Index tokens_per_leaf = 0);

  /// Adds one layer's tokens, in token order; is_real [T] or empty leaves out padding. tokens_per_sequence:
  /// of a batch of whole sequences; 0: there are none to tell apart.
  void add(Index layer, const Routing& routing, std::span<const std::uint8_t> is_real,
           Index tokens_per_sequence = 0);
  /// Becomes that of both micro-batches' tokens, but for what sequences chose.
  void merge(const RouterStatistics& other);
  /// Becomes the sum over ranks; numbers that are no integers along the tree. What sequences chose stays this
  /// rank's. Collective.
  void sum_over(const Communicator& world);
  /// The numbers that are no integers behind those of `reals`, for who sums several statistics at once.
  void append_reals(std::vector<double>& reals) const;
  /// Takes them back from the front of `reals`, which then begins behind them.
  void take_reals(std::span<const double>& reals);

  Index layers() const { return static_cast<Index>(sums_.size()); }
  Index sparse_layers() const;
  Index experts() const { return experts_; }
  const ChosenCounts& chosen() const { return chosen_; }
  void set_chosen(ChosenCounts counts) { chosen_ = std::move(counts); }
  std::span<const std::int64_t> chosen(Index layer) const;
  const ProbabilitySums& sums(Index layer) const { return sums_[at(layer)]; }
  /// Slots of the layer that chose an expert and were left without a row.
  std::int64_t dropped(Index layer) const { return dropped_[at(layer)]; }
  void set_dropped(Index layer, std::int64_t slots) { dropped_[at(layer)] = slots; }
  /// [sequences, E] of this rank's sequences, and how many of their tokens count.
  std::span<const std::int64_t> chosen_by_sequence(Index layer) const { return by_sequence_[at(layer)]; }
  std::span<const std::int64_t> tokens_of_sequences() const { return tokens_of_sequences_; }
  Index tokens_per_sequence() const { return tokens_per_sequence_; }

 private:
  /// Of tokens [begin, end) of a layer.
  void add_reals(Index layer, const Routing& routing, std::span<const std::uint8_t> is_real,
                 const std::vector<double>& factors, Index begin, Index end);
  void add_sequences(Index layer, const Routing& routing, std::span<const std::uint8_t> is_real,
                     const std::vector<double>& factors);

  Index experts_ = 0;
  Index tokens_per_leaf_ = 0;
  ChosenCounts chosen_;
  std::vector<ProbabilitySums> sums_;
  std::vector<std::int64_t> dropped_;
  std::vector<std::uint8_t> is_sparse_;
  std::vector<std::vector<std::int64_t>> by_sequence_;
  std::vector<std::int64_t> tokens_of_sequences_;
  Index tokens_per_sequence_ = 0;
};

}  // namespace moeloom
