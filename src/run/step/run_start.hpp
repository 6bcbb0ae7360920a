// What a run does once, before its first step: it tells what it is, gets its weights and takes its folder.
#pragma once

#include "train/training_state.hpp"

#include "open/opened_run.hpp"
#include "record/trace.hpp"
#include "step/run_routing.hpp"

namespace moeloom {

/// What was asked, found and decided. On every rank.
void tell_run(const OpenedRun& run, const ParameterStore& store);

/// Weights, and of a run that goes on moments: of a checkpoint, a model's folder, or initial ones.
/// Collective; throws AgreedError for a folder that does not fit or is damaged.
void load_weights(const OpenedRun& run, TrainingState& model);

/// Before the run's folder is touched: the steps that were asked for may not be those of this run.
/// Collective; throws AgreedError.
void plan_trace(const OpenedRun& run, std::optional<Trace>& trace);
void plan_routing(const OpenedRun& run, RunRouting& routing);

/// Names of checkpoints.
struct OtherCourse {
  std::vector<std::string> removed;
  std::vector<std::string> aside;  // damaged ones, which have other names now
};

/// What a resumed run did after the step that it goes on from is no longer its past -> what went; rank 0.
/// Checkpoints go before metrics: a kill between the two leaves lines too many, which the next resume drops.
/// Collective; throws AgreedError.
OtherCourse leave_other_course(const OpenedRun& run);

/// Rank 0: has the host open the log in the run's folder, which is this job's, and says what it found there.
void tell_folder(const OpenedRun& run, const OtherCourse& left);

}  // namespace moeloom
