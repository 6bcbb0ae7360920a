// Where a step's time goes: one stopwatch that is always in exactly one phase.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/base/position_board.hpp"

#include <array>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace moeloom {

/// From the widest: a step holds phases, a phase holds products.
enum class SpanKind { kStep, kPhase, kProduct };

/// A stretch of a rank's time with a name: what a trace is made of.
struct Span {
  using Clock = std::chrono::steady_clock;

  SpanKind kind = SpanKind::kPhase;
  std::string_view name;  // outlives the span
  Clock::time_point begin;
  Clock::time_point end;
  Index number = 0;  // a step's own, a product's rows
};

/// start() forgets what went before; enter() charges the time since the last enter() to the phase that was
/// current.
class PhaseClock {
 public:
  void enter(Phase next) {
    const auto now = Span::Clock::now();
    seconds_[static_cast<std::size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    if (spans_ != nullptr && now > since_)
      spans_->push_back({SpanKind::kPhase, name_of(current_), since_, now});
    current_ = next;
    since_ = now;
    if (board_ != nullptr) board_->enter(next);
    if (on_enter_) on_enter_();
  }
  void start() {
    current_ = Phase::kOther;
    seconds_ = {};
    since_ = Span::Clock::now();
  }
  /// Seconds by phase since start() or the last call; the clock goes on in kOther.
  std::array<double, kPhases> take() {
    enter(Phase::kOther);
    return std::exchange(seconds_, {});
  }

  /// From now on phases are also shown on the board, which must outlive that.
  void show_on(PositionBoard* board) { board_ = board; }
  /// Called in each phase as it begins: a test's way into the middle of a step.
  void on_enter(std::function<void()> call) { on_enter_ = std::move(call); }
  /// The micro-batch of a step, and the layer (-1: none) and direction, that phases are entered in from now
  /// on.
  void enter_step(Index step, Index micro_batch) {
    if (board_ != nullptr) board_->enter_step(step, micro_batch);
  }
  void enter_layer(Index layer, bool backward) {
    if (board_ != nullptr) board_->place(layer, backward);
  }

  /// From now on what is timed is also appended to `spans`, which must outlive that; null: no longer.
  void record_into(std::vector<Span>* spans) { spans_ = spans; }
  /// work(), a product of `rows` rows, as a span of its own inside the current phase.
  template <typename Work>
  void product(std::string_view name, Index rows, const Work& work) {
    if (spans_ == nullptr) return work();
    const auto begin = Span::Clock::now();
    work();
    spans_->push_back({SpanKind::kProduct, name, begin, Span::Clock::now(), rows});
  }

 private:
  Phase current_ = Phase::kOther;
  Span::Clock::time_point since_ = Span::Clock::now();
  std::array<double, kPhases> seconds_{};
  std::vector<Span>* spans_ = nullptr;
  PositionBoard* board_ = nullptr;
  std::function<void()> on_enter_;
};

}  // namespace moeloom
