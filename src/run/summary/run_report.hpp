// From what a rank saw of a step to what the run's files say of it.
#pragma once

#include "train/trainer.hpp"

#include "open/run_setup.hpp"
#include "record/log.hpp"
#include "record/metrics.hpp"
#include "summary/report.hpp"
#include "summary/run_time.hpp"

namespace moeloom {

/// What a rank tells the others after a step beside its report.
struct RankNews {
  Index memory_bytes = 0;  // that it holds
  int signal = 0;          // that it was sent; 0: none
  bool save_due = false;   // by its clock
  bool part_done = false;  // its part of the stage of a save under way
};

/// The same on every rank.
struct WorldStep {
  StepMetrics metrics;
  int signal = 0;          // the largest that a rank was sent; 0: none
  bool save_due = false;   // by any rank's clock
  bool parts_done = true;  // by all ranks
  Index row_slices = 1;    // the most of a rank
};

/// Of the whole world: the slowest rank's seconds, the mean of phases, the sum of bytes, the largest memory
/// and the most slices; tokens_seen of the steps before are carried on. `mine` travels with the rest, so that
/// all ranks stop and save after the same step without an exchange for it. Collective.
WorldStep measure_step(const StepReport& report, Index tokens_before, const RankNews& mine,
                       const Communicator& world);

/// Tokens of the steps before `state`, without padding: by the metrics that the run's folder has of them,
/// else by the state. What an older program did not record in it is counted as if every step had had the last
/// batch, and no padding.
Index tokens_before(const std::vector<StepMetrics>& earlier, const TrainerState& state);

/// Of each layer.
std::vector<LayerMetrics> layer_metrics(const std::vector<std::vector<Index>>& rows_per_expert,
                                        const std::vector<RoutingReport>& routing);

/// "step=40 loss=3.214 ...", with the auxiliary loss where its coefficient is not 0.
Event step_event(const StepMetrics& metrics, double aux_loss_coef);
/// Says which parameters do not decay here and do in transformers' Trainer; none if there is no such one.
std::optional<Event> decay_event(const std::vector<ParameterSpec>& specs, const OptimizerSettings& settings);

/// One line for all layers in which a collapse began or ended with a step; none if there is no such layer.
std::optional<Event> collapse_event(const std::vector<CollapseEvent>& collapse, const CollapseRule& rule);

/// A learning rate that was not said, and why it is this one.
Event rate_event(const Schedule& schedule, const std::string& reason);

/// What a log should warn of: damaged checkpoints that were passed over, and one that could not be checked.
std::vector<Event> start_warnings(const CheckedFolder& start);
/// What was found in the model's folder and gone by.
std::vector<Event> remarks_of(const ModelConfig& config);
/// What of an adapter PEFT does not load (lost_in_peft).
Event lost_in_peft_event(const std::vector<std::string>& lost);
/// That modules of some experts have no factors in an adapter's folder (modules_left_out).
Event adapter_left_out(const std::filesystem::path& folder, Index modules);
/// That a folder is whole; none where nothing could be checked.
std::optional<Event> verified_event(const CheckedFolder& start);

/// A warning where the folder of a model with other towers holds none of their tensors.
std::optional<Event> missing_towers(const RunInputs& inputs);
/// What of a folder's tensors was loaded.
Event event_of(const WeightCoverage& coverage, const std::filesystem::path& folder);
/// The last line of a run; `unit` is what a token is.
Event result_event(const std::vector<StepMetrics>& steps, const std::optional<double>& validation,
                   const std::string& unit, const RunOptions& run);

/// How much of its wall time a run trained.
Event time_event(const TimeUse& time);

/// Facts of a run in the order in which its page shows them.
std::vector<std::pair<std::string, std::string>> run_facts(const TrainOptions& options,
                                                           const RunInputs& inputs, const Mesh& mesh);

/// Text as it can stand on a terminal: control characters but line ends and tabs become '?'.
std::string printable(const std::string& bytes);

}  // namespace moeloom
