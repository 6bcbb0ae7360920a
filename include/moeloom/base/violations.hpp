// What is wrong with a configuration, collected so that all of it is told at once.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// No count of a configuration is larger: products of a few such are formed only after this.
inline constexpr Index kLargestCount = Index{1} << 40;

/// Each text names what was given: "steps = 0 must be at least 1".
class Violations {
 public:
  void unless(bool holds, const std::string& text) {
    if (!holds) add(text);
  }
  void unless_between(const std::string& name, Index value, Index least, Index most);
  /// Nor larger than kLargestCount.
  void unless_at_least(Index least, const std::string& name, Index value);
  /// The rest also asks for a finite number.
  void unless_positive(const std::string& name, double value);
  void unless_not_negative(const std::string& name, double value);
  void unless_below_one(const std::string& name, double value);
  void add(const std::string& text, Cause cause = Cause::kRequest) { add(std::vector{text}, cause); }
  void add(const std::vector<std::string>& texts, Cause cause = Cause::kRequest);
  /// Runs `check`; what it throws of this library's errors is added, so that the next check is made too.
  template <typename Check>
  void attempt(Check check) {
    try {
      check();
    } catch (const ConfigError& error) {
      add(error.violations(), error.cause());
    } catch (const Error& error) {
      add(error.what(), cause_of(error));
    }
  }

  bool empty() const { return list_.empty(); }
  const std::vector<std::string>& list() const { return list_; }
  /// Of all of them: kRequest where something has to be asked for in another way.
  Cause cause() const { return cause_; }
  /// Throws ConfigError with all of them.
  void throw_if_any() const {
    if (!empty()) throw ConfigError(list_, cause_);
  }

 private:
  std::vector<std::string> list_;
  Cause cause_ = Cause::kRequest;
};

}  // namespace moeloom
