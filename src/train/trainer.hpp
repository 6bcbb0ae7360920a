// One training step, from tokens to new weights.
#pragma once

#include "base/phase_clock.hpp"
#include "moe/dispatch/dispatch_traffic.hpp"
#include "moe/rebalance/rebalance_counts.hpp"
#include "moe/routing/router_statistics.hpp"
#include "moeloom/train/optimizer_settings.hpp"
#include "moeloom/train/schedule.hpp"
#include "train/batch_source.hpp"
#include "train/router_bias.hpp"
#include "train/sharded_optimizer.hpp"
#include "train/step_checks.hpp"

#include <functional>

namespace moeloom {

class Decoder;
class StepRouting;
struct LossScales;

/// One of a step's micro-batches, as it runs on this rank.
struct MicroBatchPlace {
  Index step = 0;
  Index micro_batch = 0;
};

/// What may be done around a micro-batch. Either may be collective over the world; a rerun of a step that was
/// not finite calls them again.
struct TrainerHooks {
  /// Before its forward: may fill Batch::given_topk_idx.
  std::function<void(MicroBatchPlace, Batch&)> before;
  /// After its backward: the layers' routings (Decoder::layers(), moe()->routing) are those of its forward.
  std::function<void(MicroBatchPlace, const Batch&, const Decoder&)> after;
};

struct TrainerSettings {
  Schedule schedule;
  BatchShape batch;
  double aux_loss_coef = 0;
  double z_loss_coef = 0;
  double router_bias_rate = 0;  // 0: biases of the choice are left alone
  OnNan on_nan = OnNan::kStop;
  Index check_replicas = 0;  // every so many steps replicas are compared across ranks; 0: never
  Index check_steps = 0;     // every so many steps gradients are computed twice; 0: never
  std::uint64_t seed = 0;    // of what adapters leave out of their inputs, another mask a step
  TrainerHooks hooks = {};
};

/// How sure a layer's router was, and what it left out, over the tokens of a step.
struct RoutingReport {
  double entropy = 0;        // nats, of a token's scores divided by their sum; mean over tokens
  double dropped_share = 0;  // of the slots that chose an expert, those that capacity left without a row
};

/// The same on every rank but for seconds, phases, bytes, packings and row_slices, which are this rank's.
struct StepReport {
  Index step = 0;
  double loss = 0;      // what was differentiated: lm_loss + coefficients times aux_loss and z_loss
  double lm_loss = 0;   // nats a token, mean over the global batch
  double aux_loss = 0;  // mean over micro-batches
  double z_loss = 0;
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  Index tokens = 0;      // of the global batch, without padding
  Index targets = 0;     // of them learned: what lm_loss is the mean over
  bool skipped = false;  // not finite, and left out
  double seconds = 0;
  std::array<double, kPhases> phase_seconds{};  // add up to `seconds`
  std::int64_t message_bytes = 0;
  DispatchTraffic dispatch;                // of those bytes, the dispatcher's between nodes
  std::vector<RebalanceCounts> rebalance;  // [layer], this rank's part; none without rebalancing
  Index packings = 0;                      // of expert weights in this step
  Index packed_bytes = 0;                  // that their packed faces take
  std::vector<std::vector<Index>>
      rows_per_expert;  // [layer][global expert], whole world, micro-batches that ran; empty if dense
  /// The same of slots as their tokens chose, before capacity leaves some without a row; without padding.
  std::vector<std::vector<Index>> chosen_per_expert;
  Index row_slices = 1;                // the most that a layer ran in, for its row budget
  std::vector<RoutingReport> routing;  // [layer], of the same tokens; zeros if dense

  /// Time that is of this step, too.
  void add(Phase phase, double more) {
    phase_seconds[static_cast<std::size_t>(phase)] += more;
    seconds += more;
  }
};

class Trainer {
 public:
  /// All must outlive it. Collective over the world.
  Trainer(Decoder& decoder, ParameterStore& store, const Mesh& mesh, ShardedOptimizer& optimizer,
          BatchSource batches, TrainerSettings settings);

  /// Steps are numbered from 0. Collective over the world. Throws AgreedError, the same on every rank, when
  /// the loss or the gradient is not finite and on_nan is kStop: it names the step, where it was met first
  /// (a layer, or a parameter and its expert), and on which ranks; and when no token of the step is a target.
  /// Throws DifferenceError, also on every rank, where a check of the settings finds replicas or two runs of
  /// a step that differ.
  /// Where weights are gathered by layer, some may still travel when it returns: the next step waits for each
  /// before it reads it, and whoever else reads them calls settle() first.
  StepReport step(Index step);
  /// Waits for the weights of the last update. Collective over the world.
  void settle();
  /// Mean of -log p over the counted targets of all ranks' batches, each rank giving the same number of
  /// batches. Collective over the world.
  double evaluate(const std::vector<Batch>& batches);

 private:
  Batch batch_of(MicroBatchPlace place) const;
  /// Every rank finds the same, before its first micro-batch.
  LossScales scales_of(Index step, StepTokens tokens) const;
  /// Of the whole step, where a loss over the global batch needs them before its first micro-batch.
  std::optional<ChosenCounts> count_ahead(Index step);
  /// look_at: what is done with the gradients in place of their reduction.
  void run_micro_batches(StepReport& report, StepRouting& routing,
                         const std::function<void(Index part)>& look_at = {});
  std::function<void(Index part)> arrival();
  std::function<void(Index part)> reduction_in(bool is_last);
  /// Once more, from the same weights and tokens, to the same gradients. No state advances twice: random
  /// numbers are functions of their places, and the statistics of the first run stay.
  void run_again(const StepReport& first);
  void compare_replicas(const StepReport& report);
  void update(StepReport& report, StepRouting& routing);
  template <typename Where>
  void leave_out(StepReport& report, const std::string& what, Where where);
  std::string where_the_loss_broke() const;
  std::string where_the_gradient_broke(Index step);

  Decoder& decoder_;
  ParameterStore& store_;
  const Mesh& mesh_;
  ShardedOptimizer& optimizer_;
  BatchSource batches_;
  TrainerSettings settings_;
  NamedHashes held_;  // after the update before a step that is checked; else empty
};

/// Bytes that this rank has sent along any axis of the mesh so far.
std::int64_t message_bytes(const Mesh& mesh);

}  // namespace moeloom
