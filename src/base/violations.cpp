#include "moeloom/base/violations.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

std::string equation(const std::string& name, Index value) {
  return name + " = " + std::to_string(value);
}

std::string equation(const std::string& name, double value) {
  return name + " = " + number_text(value);
}

}  // namespace

void Violations::add(const std::vector<std::string>& texts, Cause cause) {
  if (texts.empty()) return;
  const bool requested = cause == Cause::kRequest || (!empty() && cause_ == Cause::kRequest);
  cause_ = requested ? Cause::kRequest : empty() ? cause : std::max(cause, cause_);
  list_.insert(list_.end(), texts.begin(), texts.end());
}

void Violations::unless_between(const std::string& name, Index value, Index least, Index most) {
  unless(value >= least && value <= most, equation(name, value) + " must lie between " +
                                              std::to_string(least) + " and " + std::to_string(most));
}

void Violations::unless_at_least(Index least, const std::string& name, Index value) {
  unless(value >= least, equation(name, value) + " must be at least " + std::to_string(least));
  unless(value <= kLargestCount,
         equation(name, value) + " is too large; at most " + std::to_string(kLargestCount));
}

void Violations::unless_positive(const std::string& name, double value) {
  unless(std::isfinite(value) && value > 0, equation(name, value) + " must be positive and finite");
}

void Violations::unless_not_negative(const std::string& name, double value) {
  unless(std::isfinite(value) && value >= 0, equation(name, value) + " must be finite and not negative");
}

void Violations::unless_below_one(const std::string& name, double value) {
  unless(value >= 0 && value < 1, equation(name, value) + " must lie in [0, 1)");
}

}  // namespace moeloom
