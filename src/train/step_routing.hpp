// What the routers did in a step: collected from its micro-batches, summed over the world once, and reported.
#pragma once

#include "comm/pending_sum.hpp"
#include "model/decoder.hpp"
#include "train/trainer.hpp"

#include <optional>
#include <vector>

namespace moeloom {

class StepRouting {
 public:
  /// exact: what is summed over micro-batches has the same bits however many there are.
  StepRouting(const Decoder& decoder, const Mesh& mesh, bool exact)
      : decoder_(decoder), mesh_(mesh), exact_(exact) {}

  /// After a micro-batch's forward, whose plans are still there.
  void add(RouterStatistics routers);
  /// Counts leave for the other ranks, to be waited for later. Collective over the world.
  void begin_sum();
  /// Fills rows_per_expert, routing, aux_loss and z_loss. Collective over the world.
  void finish(StepReport& report);
  /// [layers, E]: how often experts were chosen in the whole step. After finish().
  const std::vector<std::int64_t>& chosen() const { return step_.per_expert; }

 private:
  /// Of all micro-batches in one message a rank.
  void sum_reals();
  double aux_loss_of(const RouterStatistics& routers) const;
  void report_whole_step(StepReport& report) const;
  void report_routing(StepReport& report) const;

  const Decoder& decoder_;
  const Mesh& mesh_;
  bool exact_;
  std::vector<RouterStatistics> micro_batches_;
  std::vector<std::vector<Index>> rows_per_expert_;  // [layer][expert]; empty if dense
  Index row_slices_ = 1;
  std::optional<PendingSum> sum_;
  ChosenCounts step_;
};

}  // namespace moeloom
