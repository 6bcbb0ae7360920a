#include "step/adapter_watch.hpp"

#include "moeloom/base/errors.hpp"
#include "train/starved_parameters.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kStepsToLearn = 10;

Index factors_of_experts(const ParameterStore& store) {
  Index factors = 0;
  for (const Parameter& parameter : store.parameters())
    if (!parameter.spec.frozen && parameter.spec.placement == Placement::kExperts)
      factors += parameter.spec.total_groups;
  return factors;
}

}  // namespace

void AdapterWatch::step(const StepReport& report) {
  if (!run_.inputs.config.adapter || steps_ == kStepsToLearn || report.skipped) return;
  steps_with_rows_.resize(report.rows_per_expert.size());
  for (std::size_t layer = 0; layer < steps_with_rows_.size(); ++layer) {
    steps_with_rows_[layer].resize(report.rows_per_expert[layer].size());
    for (std::size_t expert = 0; expert < steps_with_rows_[layer].size(); ++expert)
      steps_with_rows_[layer][expert] += report.rows_per_expert[layer][expert] > 0 ? 1 : 0;
  }
  if (++steps_ == kStepsToLearn) judge();
}

void AdapterWatch::judge() const {
  const std::string in_steps = " in " + std::to_string(kStepsToLearn) + " steps";
  const auto idle = without_gradient(store_, optimizer_, run_.mesh, steps_with_rows_);
  const Index of_experts = std::ranges::count_if(idle, [](const NoGradient& one) { return one.expert >= 0; });
  if (of_experts > 0)
    run_.warn_once(
        Event()
            .with("adapter", "not trained yet")
            .with("experts' factors", of_experts)
            .with("reason", "no token that the loss counts chose these experts more than once" + in_steps));
  // Rows of one expert may be of tokens without a target, those of all of them are not.
  const bool none_learnt = of_experts == factors_of_experts(store_);
  const auto lost = std::ranges::find_if(
      idle, [&](const NoGradient& one) { return one.expert < 0 || (none_learnt && !one.starved); });
  if (lost == idle.end()) return;
  throw AgreedError(lost->parameter + (lost->expert < 0 ? "" : " of expert " + std::to_string(lost->expert)) +
                    " is trained, but had no gradient" + in_steps + " (" + std::to_string(idle.size()) +
                    " factors in all): nothing of the loss depends on it");
}

}  // namespace moeloom
