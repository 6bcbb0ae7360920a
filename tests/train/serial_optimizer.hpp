// What the sharded optimizer is held to: everything on one process, in double, by AdamW's formula.
#pragma once

#include <algorithm>

#include "sharded_run.hpp"

namespace moeloom::testing {

class SerialOptimizer {
 public:
  struct State {
    double w = 0, m = 0, v = 0;
  };

  SerialOptimizer(ModelSpecs model, OptimizerSettings settings)
      : specs_(model(kAllExperts)), settings_(settings) {
    for (std::size_t p = 0; p < specs_.size(); ++p) {
      std::vector<State>& states = states_.emplace_back(at(specs_[p].rows * specs_[p].cols));
      for (std::size_t i = 0; i < states.size(); ++i)
        states[i].w = start_weight(static_cast<Index>(p), static_cast<Index>(i));
      times_.emplace_back(at(specs_[p].groups), 0);
    }
  }

  double step(const Gradient& gradient, Index step, const ExpertRows& rows = {}) {
    double squares = 0;
    std::vector<std::vector<double>> grads;
    for (std::size_t p = 0; p < specs_.size(); ++p)
      for (auto& grad = grads.emplace_back(); grad.size() < states_[p].size();
           squares += grad.back() * grad.back())
        grad.push_back(total(gradient, step, static_cast<Index>(p), std::ssize(grad)));
    const double norm = std::sqrt(squares);
    for (std::size_t p = 0; p < specs_.size(); ++p)
      for (Index group = 0; group < specs_[p].groups; ++group)
        if (!skipped(specs_[p], group, rows)) update(p, group, grads[p], clip(norm));
    return norm;
  }

  const State& state(Index parameter, Index element) const { return states_[at(parameter)][at(element)]; }
  Index time(Index parameter, Index group) const { return times_[at(parameter)][at(group)]; }

 private:
  static double total(const Gradient& gradient, Index step, Index p, Index element) {
    double sum = 0;
    for (Index c = 0; c < kContributions; ++c) sum += static_cast<double>(gradient(step, c, p, element));
    return sum;
  }
  double clip(double norm) const {
    if (settings_.max_grad_norm == 0) return 1;
    return std::min(1.0, settings_.max_grad_norm / (norm + 1e-6));
  }
  bool skipped(const ParameterSpec& spec, Index group, const ExpertRows& rows) const {
    return settings_.starved == StarvedExperts::kSkip && spec.placement == Placement::kExperts &&
           rows[at(spec.layer)][at(group)] == 0;
  }
  void update(std::size_t p, Index group, const std::vector<double>& grad, double clip) {
    const AdamW& a = settings_.adamw;
    const auto t = static_cast<double>(++times_[p][at(group)]);
    const double decay = settings_.decay_all || specs_[p].is_matrix ? a.weight_decay : 0;
    const std::size_t each = states_[p].size() / at(specs_[p].groups);
    for (std::size_t i = at(group) * each; i < (at(group) + 1) * each; ++i) {
      State& s = states_[p][i];
      const double g = clip * grad[i];
      s.w *= 1 - 0.01 * decay;
      s.m = a.beta1 * s.m + (1 - a.beta1) * g;
      s.v = a.beta2 * s.v + (1 - a.beta2) * g * g;
      s.w -= 0.01 / (1 - std::pow(a.beta1, t)) * s.m /
             (std::sqrt(s.v) / std::sqrt(1 - std::pow(a.beta2, t)) + a.epsilon);
    }
  }

  std::vector<ParameterSpec> specs_;
  OptimizerSettings settings_;
  std::vector<std::vector<State>> states_;
  std::vector<std::vector<Index>> times_;
};

}  // namespace moeloom::testing
