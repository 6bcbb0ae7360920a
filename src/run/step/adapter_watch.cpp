#include "step/adapter_watch.hpp"

#include "moeloom/base/errors.hpp"
#include "train/starved_parameters.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kStepsToLearn = 10;  // after which every factor of an adapter has had a gradient

}  // namespace

void AdapterWatch::step(const StepReport& report) {
  if (!run_.inputs.config.adapter || steps_ == kStepsToLearn) return;
  rows_.resize(report.rows_per_expert.size());
  for (std::size_t layer = 0; layer < rows_.size(); ++layer) {
    rows_[layer].resize(report.rows_per_expert[layer].size());
    for (std::size_t expert = 0; expert < rows_[layer].size(); ++expert)
      rows_[layer][expert] += report.rows_per_expert[layer][expert];
  }
  if (++steps_ == kStepsToLearn) judge();
}

void AdapterWatch::judge() const {
  const std::string in_steps = " in " + std::to_string(kStepsToLearn) + " steps";
  const auto idle = without_gradient(store_, optimizer_, run_.mesh, rows_);
  const auto starved = std::ranges::count_if(idle, &NoGradient::starved);
  if (starved > 0)
    run_.warn_once(Event()
                       .with("adapter", "not trained yet")
                       .with("experts' factors", static_cast<Index>(starved))
                       .with("reason", "no token chose these experts" + in_steps));
  const auto lost = std::ranges::find_if(idle, [](const NoGradient& one) { return !one.starved; });
  if (lost == idle.end()) return;
  throw AgreedError(lost->parameter + (lost->expert < 0 ? "" : " of expert " + std::to_string(lost->expert)) +
                    " is trained, but had no gradient" + in_steps + " (" +
                    std::to_string(std::ssize(idle) - starved) +
                    " factors in all): nothing of the loss depends on it");
}

}  // namespace moeloom
