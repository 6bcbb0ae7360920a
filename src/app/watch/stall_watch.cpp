#include "watch/stall_watch.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <unistd.h>
#include <utility>

#include "watch/leftovers.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// For the watchers of the other ranks to answer; for the one that speaks to end the job.
constexpr auto kAnswer = std::chrono::seconds(2);
constexpr auto kSpeak = std::chrono::seconds(10);
constexpr auto kSlept = std::chrono::seconds(5);
constexpr Index kLooksAQuestion = 8;

double seconds_since(WakeClock::Clock::time_point then) {
  return std::chrono::duration<double>(WakeClock::Clock::now() - then).count();
}

}  // namespace

double limit_at(const Position& position, const WatchOrder& order) {
  switch (position.activity) {
    case Activity::kStarting:
      return order.start_seconds;
    case Activity::kLoading:
    case Activity::kSaving:
    case Activity::kEnding:
      return order.file_seconds;
    case Activity::kTraining:
    case Activity::kValidating:
      break;
  }
  return order.step_seconds;
}

double patience(double limit) {
  return std::clamp(limit, 6.0, 30.0);
}

bool WakeClock::slept() {
  const auto now = Clock::now();
  return now - std::exchange(looked_, now) > kSlept;
}

StallWatch::StallWatch(const PositionBoard& board, const WatchOrder& order, pid_t process,
                       std::function<void()> pause)
    : board_(board),
      order_(order),
      process_(process),
      pause_(std::move(pause)),
      rank_(order.rank),
      world_(order.world),
      host_(order.host.data()),
      run_(order.folder.data()),
      folder_(run_ / "stall"),
      last_(board.read()) {}

bool StallWatch::look() {
  forget_sleep();
  if (order_.settled && !std::exchange(cleaned_, true)) clean();
  const bool moved = has_moved();
  if (!moved && seconds_since(moved_) >= limit_at(last_, order_)) return decide();
  std::error_code ignored;
  if (++looks_ % kLooksAQuestion == 0 && fs::exists(folder_, ignored)) answer();
  return false;
}

/// Who still waits asks again.
void StallWatch::forget_question() {
  found_.reset();
  if (!std::exchange(asked_, std::nullopt)) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void StallWatch::forget_sleep() {
  if (!wake_.slept()) return;
  moved_ = Clock::now();
  forget_question();
}

bool StallWatch::has_moved() {
  const Position now = board_.read();
  if (now.moves == last_.moves) return false;
  last_ = now;
  moved_ = Clock::now();
  forget_question();
  return true;
}

/// Goes on looking for so long -> whether the rank still has not moved.
bool StallWatch::wait(std::chrono::seconds time) {
  for (const auto until = Clock::now() + time; Clock::now() < until && getppid() == process_;) {
    pause_();
    forget_sleep();
    if (has_moved()) return false;
  }
  return getppid() == process_;
}

fs::path StallWatch::file_of(Index rank) const {
  return folder_ / ("rank-" + std::to_string(rank) + ".json");
}

RankPosition StallWatch::here() const {
  const double seconds = seconds_since(moved_);
  return {.rank = rank_,
          .host = host_,
          .process = process_,
          .state = process_state(process_),
          .moves = seconds < limit_at(last_, order_),
          .seconds = seconds,
          .position = last_};
}

/// Of what an earlier job left in the folder.
void StallWatch::clean() {
  if (rank_ != 0) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  fs::remove_all(run_ / kEndedFolder, ignored);
  fs::remove(run_ / "stall.json", ignored);
}

/// Whole or not at all. It need not outlive a power cut, and a busy disk takes long to promise that. Where
/// this rank moves, the answer stays until the question goes: a rank that moves is heard all the time.
void StallWatch::answer() const {
  std::error_code error;
  const fs::path partial = file_of(rank_).string() + ".partial";
  std::ofstream(partial) << here().to_document().dump();
  fs::rename(partial, file_of(rank_), error);
}

void StallWatch::ask() {
  if (!asked_) asked_ = Clock::now();
  std::error_code error;
  fs::create_directories(folder_, error);
  answer();
}

std::vector<std::optional<RankPosition>> StallWatch::all() const {
  std::vector<std::optional<RankPosition>> positions(at(world_));
  for (Index rank = 0; rank < world_; ++rank) try {
      positions[at(rank)] = RankPosition::from(Document::read(file_of(rank)));
    } catch (const Error&) {
      // it is not there, or not any more
    }
  positions[at(rank_)] = here();
  return positions;
}

/// Asks until every rank has answered, twice with one result; then the first rank that is not stopped speaks
/// for all. A rank of which nothing is heard is given more time.
bool StallWatch::decide() {
  ask();
  if (!wait(kAnswer)) return false;
  std::vector<std::optional<RankPosition>> positions = all();
  const Stall stall = find_stall(positions);
  if (stall.cause == StallCause::kNone) return false;
  if (stall.cause == StallCause::kSilent && seconds_since(*asked_) < patience(limit_at(last_, order_)))
    return false;
  if (std::exchange(found_, stall.ranks) != stall.ranks) return false;
  const auto speaks = std::ranges::find_if(
      positions, [](const auto& position) { return position && !position->is_stopped(); });
  if ((*speaks)->rank != rank_ && !wait(kSpeak)) return false;
  say(stall, positions);
  return true;
}

/// The line first: the disk may be what everybody waits for.
void StallWatch::say(const Stall& stall, const std::vector<std::optional<RankPosition>>& positions) const {
  Document document;
  const std::string text = stall_text(stall, positions);
  const fs::path file = run_ / "stall.json";
  std::cerr << "[error] " + text + "; every rank's position: " + file.string() + "\n" << std::flush;
  document.set("stalled", text);
  document.set("ranks", stall.ranks);
  std::vector<Document> ranks;
  for (const auto& position : positions)
    if (position) ranks.push_back(position->to_document());
  document.set("positions", ranks);
  std::ofstream(file) << document.dump();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace moeloom
