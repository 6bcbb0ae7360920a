// Rows that would be lost or made up on the way.
#pragma once

#include "moeloom/base/errors.hpp"

namespace moeloom {

/// Ranks do not agree on how many rows travel between them: memory or a link has changed a number. Thrown on
/// the ranks that see it, before a row is lost; the others wait, and only ending the job helps.
class CountError : public CorruptError {
 public:
  using CorruptError::CorruptError;
};

}  // namespace moeloom
