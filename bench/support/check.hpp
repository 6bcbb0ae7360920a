// --check: whether what is about to be timed computes what it should.
#pragma once

#include "base/text.hpp"

#include <stdexcept>
#include <string>

namespace moeloom::bench {

/// Throws where an error is no number or above the tolerance: a wrong answer is not timed.
inline void refuse_unless_right(const std::string& subject, double error, double tolerance) {
  if (error <= tolerance) return;
  throw std::runtime_error(subject + " differs from ep = 1 by " + number_text(error) + ", more than " +
                           number_text(tolerance));
}

}  // namespace moeloom::bench
