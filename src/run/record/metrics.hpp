// RUN/metrics.jsonl: one JSON object a step.
#pragma once

#include "train/collapse_watch.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moeloom {

/// How one layer's router spread the tokens of a step; zeros if the layer is dense or had none.
struct LayerMetrics {
  double max_over_mean = 0;  // LoadBalance, of all ranks' rows
  double load_cv = 0;
  double load_gini = 0;
  double dead_experts = 0;
  double entropy = 0;  // RoutingReport
  double dropped_share = 0;
  // Of --rebalance, as RebalanceMetrics has them.
  double rank_load_before = 0, rank_load_after = 0;
  double uneven_ms = 0, saved_ms = 0;
  double replicas = 0;
};

/// What --rebalance did in a step, over all layers and micro-batches, of all ranks.
struct RebalanceMetrics {
  Index made = 0, even = 0, does_not_pay = 0, no_room = 0;  // decisions
  Index replicas = 0;
  Index rows_moved = 0;
  Index weight_bytes = 0, gradient_bytes = 0;
  double load_before = 0, load_after = 0;  // rows of the fullest rank over the mean
  // Predicted, by the rates that decide: what uneven rows would have cost over even ones, and what replicas
  // saved; more than that where rows then did not need to travel.
  double uneven_ms = 0, saved_ms = 0;
};

/// Keys in the file are the names here, but for `phases`, `expert_load` and `routing`. What is not finite is
/// null there and NaN when read back.
struct StepMetrics {
  Index step = 0;
  double loss = 0;  // nats a token, without auxiliary losses
  double aux_loss = 0;
  double z_loss = 0;
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  double tokens_per_s = 0;
  /// Of the slowest rank: `phases`, which are means over ranks. With the three below, lines add up to about
  /// the time from a process's start to its last step: those are rank 0's, and what a host does between steps
  /// is in none.
  double seconds = 0;
  double start_seconds = 0;  // of the first step of a process: from its start to that step; no key if 0
  double save_seconds = 0;   // that saves held the steps since the line before; no key if 0
  double eval_seconds = 0;   // of the validation that val_loss is from; no key if 0
  Index tokens_seen = 0;
  Index message_bytes = 0;  // by all ranks
  Index network_bytes = 0;  // of those, the dispatcher's between nodes
  Index row_bytes = 0;      // a row as one fp32 copy for each chosen expert of another rank, out and back
  std::optional<RebalanceMetrics> rebalance;  // none: rebalancing was off
  Index rss_bytes = 0;     // the most that a rank held after a step so far; of shared pages its own
  Index packings = 0;      // of expert weights, on rank 0
  Index packed_bytes = 0;  // that they take on rank 0
  bool skipped = false;
  std::optional<double> val_loss;
  std::map<std::string, double> seconds_by_phase;  // "phases"
  /// "expert_load": fullest over mean by layer; "routing", and of replicas "layers" of "rebalance": the other
  /// figures, each by layer, to five digits.
  /// Figures of a file from before there were any are NaN.
  std::vector<LayerMetrics> layers;
  std::vector<CollapseEvent> collapse;  // what began or ended with this step; no key if nothing did
};

/// The object on one line.
std::string metrics_line(const StepMetrics& metrics);

/// Every line that is whole; none for a file that does not exist. Throws IoError if it cannot be read.
std::vector<StepMetrics> read_metrics(const std::filesystem::path& path);

}  // namespace moeloom
