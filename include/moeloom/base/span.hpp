// A stretch of a rank's time with a name: what a trace is made of.
#pragma once

#include "moeloom/base/index.hpp"

#include <chrono>
#include <string_view>

namespace moeloom {

/// From the widest: a step holds phases, a phase holds products.
enum class SpanKind { kStep, kPhase, kProduct };

struct Span {
  using Clock = std::chrono::steady_clock;

  SpanKind kind = SpanKind::kPhase;
  std::string_view name;  // outlives the span
  Clock::time_point begin;
  Clock::time_point end;
  Index number = 0;  // a step's own, a product's rows
};

}  // namespace moeloom
