// Experts that change ranks for good, weights, moments and all, where uneven load lasts (--replace-every).
//
// Rows of every expert are counted over a number of steps; then plan_seats() decides layer by layer. What a
// step computes has the same bits wherever an expert lies, so losses do not change.
#pragma once

#include "moeloom/moe/rebalance/seat_plan.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

#include <optional>

namespace moeloom {

class Decoder;

struct ReplaceSettings {
  Index every = 0;  // steps between two decisions; 0: experts stay
  RebalanceRates rates = {};
  bool pooled_by_node = false;  // a node pool makes the rows of a node's ranks even
  Index pretended_nodes = 0;    // find_nodes()'s
};

/// What was decided after a step, over all sparse layers; the same on every rank but for `bytes` and
/// `seconds`.
struct ReplaceReport {
  std::array<Index, kSeatVerdicts.size()> verdicts{};  // layers, by SeatVerdict
  Index layers = 0;
  Index moved = 0;                         // experts
  double load_before = 0, load_after = 0;  // rows of the fullest rank over the mean, mean over layers
  std::int64_t saved = 0, moving = 0;      // nanoseconds, predicted: of the next steps, and once
  std::int64_t bytes = 0;                  // that this rank sent
  double seconds = 0;                      // that deciding and moving took it

  Index decided(SeatVerdict verdict) const { return verdicts[static_cast<std::size_t>(verdict)]; }
};

class ExpertMover {
 public:
  /// All must outlive it. Collective over the world. Throws ShapeError unless ep divides the experts.
  ExpertMover(Decoder& decoder, ParameterStore& store, ShardedOptimizer& optimizer, const Mesh& mesh,
              ReplaceSettings settings);

  /// Counts a step's rows, [layer][expert] of the whole world; decides and moves after every so many of
  /// them. Between two steps; collective over the world.
  std::optional<ReplaceReport> after_step(const std::vector<std::vector<Index>>& rows_per_expert);

 private:
  ReplaceReport decide_and_move();
  void move_layer(Index layer, const ExpertSeats& seats);
  void move_weights(Index parameter, std::span<const SeatMove> moves);

  Decoder& decoder_;
  ParameterStore& store_;
  ShardedOptimizer& optimizer_;
  const Mesh& mesh_;
  ReplaceSettings settings_;
  SeatRanks ranks_;
  std::vector<ParameterSpec> whole_;  // of all experts, in store order; without slices where dense
  std::vector<SeatLoads> loads_;      // [layer]
  Index counted_ = 0;                 // steps since the last decision
};

}  // namespace moeloom
