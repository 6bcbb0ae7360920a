// What decides a run's course beside its weights: kept in every checkpoint, and compared when the run goes
// on.
#pragma once

#include "moeloom/run/options.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/trainer.hpp"

#include "record/log.hpp"

namespace moeloom {

/// Of TrainerState::settings: an adapter's dropout, which its own files do not always say (adapter.hpp).
inline constexpr const char* kDropoutSetting = "lora_dropout";
/// And the base_mark() of the model under it.
inline constexpr const char* kBaseSetting = "lora_base";

TrainerSettings trainer_settings(const TrainOptions& options, const ModelConfig& config);

/// settled() options.
RoutingSettings routing_settings(const TrainOptions& options);

/// Schedule and coefficients, for TrainerState::settings.
Document document_of(const TrainerSettings& settings);

/// What routers do, beside it; settled() options.
void add_routing(const RouterOptions& router, const ModelConfig& config, Document& settings);

/// What else a step stands on, as the options are written: the optimizer's numbers, the order and precision
/// of sums, what replaces the routers' choices, and what becomes of a step that is not finite.
void add_step_texts(const TrainOptions& options, Document& settings);

/// What `now` would change of the run that `then` recorded: an event each, with the option that keeps it, and
/// one with the learning rates of the last step done and of the next if the schedule is another. What an
/// older program did not record is not compared.
std::vector<Event> changes_between(const TrainerState& then, const TrainerState& now);

}  // namespace moeloom
