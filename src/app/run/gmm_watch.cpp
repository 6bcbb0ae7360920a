#include "run/gmm_watch.hpp"

#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace moeloom {
namespace {

constexpr std::size_t kStepsOfAStage = 5;
constexpr double kLargestError = 0.25;

std::string text(const char* format, double value) {
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string milliseconds_words(double seconds) {
  return text("%.3g ms", 1e3 * seconds);
}

const char* path_name(bool grouped) {
  return grouped ? "grouped" : "loop";
}

}  // namespace

GmmNews GmmWatch::after_step(Index steps_done, double seconds) {
  GmmNews news;
  news.step = steps_done;
  if (done()) return news;
  seconds_.push_back(seconds);
  if (seconds_.size() < kStepsOfAStage) return news;
  const double measured = median(seconds_);
  seconds_.clear();
  if (stage_ == Stage::kTrial) {
    decide(news, measured);
    stage_ = Stage::kDone;
  } else {
    check(news, measured);
  }
  return news;
}

void GmmWatch::check(GmmNews& news, double measured) {
  news.check = {predicted(grouped_), measured};
  if (std::abs(news.check->error()) <= kLargestError) {
    stage_ = Stage::kDone;
  } else if (stage_ == Stage::kFirstCheck) {
    stage_ = Stage::kSecondCheck;
  } else if (measured <= predicted(!grouped_)) {
    // A clock that is slower for everybody is no reason to try what was predicted slower still.
    stage_ = Stage::kDone;
    news.decision = {grouped_, "kept at step " + std::to_string(news.step) + ": measured " +
                                   milliseconds_words(measured) + ", where " +
                                   milliseconds_words(predicted(!grouped_)) + " were predicted for the " +
                                   path_name(!grouped_) + " path"};
  } else {
    stage_ = Stage::kTrial;
    of_chosen_ = measured;
    news.use_grouped = !grouped_;
  }
}

void GmmWatch::decide(GmmNews& news, double of_other) const {
  const bool keep = of_chosen_ <= of_other;
  const double of_grouped = grouped_ ? of_chosen_ : of_other, of_loop = grouped_ ? of_other : of_chosen_;
  const bool apply = keep ? grouped_ : !grouped_;
  news.use_grouped = apply;
  news.decision = {apply, std::string(keep ? "kept" : "changed") + " at step " + std::to_string(news.step) +
                              ": measured " + milliseconds_words(of_grouped) + " grouped against " +
                              milliseconds_words(of_loop) + " for the loop, where " +
                              milliseconds_words(prediction_.gmm_seconds) + " and " +
                              milliseconds_words(prediction_.loop_seconds) + " were predicted"};
}

std::vector<Event> events_of(const GmmNews& news) {
  std::vector<Event> events;
  if (news.check)
    events.push_back(Event()
                         .with("gmm_check step", news.step)
                         .with("predicted_ms", 1e3 * news.check->predicted_seconds)
                         .with("measured_ms", 1e3 * news.check->measured_seconds)
                         .with("error", text("%+.0f%%", 100 * news.check->error())));
  if (news.use_grouped && !news.decision)
    events.push_back(Event()
                         .with("gmm_switch step", news.step)
                         .with("to", path_name(*news.use_grouped))
                         .with("reason",
                               "a trial of 5 steps: measured and predicted differ by more than 25 % "
                               "at two checks"));
  if (news.decision)
    events.push_back(Event()
                         .with("gmm_switch step", news.step)
                         .with("to", path_name(news.decision->apply))
                         .with("gmm", news.decision->apply)
                         .with("reason", news.decision->reason));
  return events;
}

}  // namespace moeloom
