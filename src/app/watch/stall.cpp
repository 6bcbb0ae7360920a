#include "watch/stall.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace moeloom {
namespace {

constexpr std::array kActivities = {Activity::kStarting,   Activity::kLoading, Activity::kTraining,
                                    Activity::kValidating, Activity::kSaving,  Activity::kEnding};

/// Larger for a rank that is further in the run; equal within a layer, whose phases take turns with those of
/// what travels.
auto progress_of(const Position& at) {
  constexpr Index kBefore = std::numeric_limits<Index>::min(), kAfter = std::numeric_limits<Index>::max();
  Index layer = 0;
  if (at.layer >= 0)
    layer = at.backward ? -at.layer : at.layer;
  else
    layer = !at.backward || at.phase == Phase::kLoss || at.phase == Phase::kDense ? kBefore : kAfter;
  // Of a step: its phases, then what is done between it and the next one.
  constexpr std::array kOrder = {Activity::kStarting,   Activity::kLoading, Activity::kTraining,
                                 Activity::kValidating, Activity::kSaving,  Activity::kEnding};
  const auto order = std::ranges::find(kOrder, at.activity) - kOrder.begin();
  return std::tuple(at.step, order, at.micro_batch, at.backward, layer);
}

/// In a call of MPI, or in a phase that goes on when other ranks do, some in memory that they share.
bool waits(const Position& at) {
  constexpr std::array kMet = {Phase::kPlan, Phase::kDispatch, Phase::kCombine, Phase::kReduce};
  return !at.call.empty() || std::ranges::count(kMet, at.phase) > 0;
}

std::string list_of(const std::vector<Index>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string who(const RankPosition& rank) {
  return "rank " + std::to_string(rank.rank) + " (process " + std::to_string(rank.process) + " on " +
         rank.host + ")";
}

}  // namespace

Document RankPosition::to_document() const {
  Document document;
  document.set("rank", rank);
  document.set("host", host);
  document.set("process", process);
  document.set("state", std::string(1, state));
  document.set("moves", moves);
  document.set("seconds", seconds);
  document.set("activity", std::string(name_of(position.activity)));
  document.set("step", position.step);
  document.set("micro_batch", position.micro_batch);
  document.set("layer", position.layer);
  document.set("backward", position.backward);
  document.set("phase", std::string(name_of(position.phase)));
  document.set("call", position.call);
  document.set("waits_for", position.waits_for);
  document.set("moved", position.moves);
  return document;
}

RankPosition RankPosition::from(const Document& document) {
  RankPosition read;
  read.rank = document.integer("rank");
  read.host = document.text("host");
  read.process = document.integer("process");
  read.state = (document.text("state") + "?").front();
  read.moves = document.boolean("moves");
  read.seconds = document.number("seconds");
  const std::string activity = document.text("activity"), phase = document.text("phase");
  for (const Activity each : kActivities)
    if (name_of(each) == activity) read.position.activity = each;
  for (std::size_t i = 0; i < kPhases; ++i)
    if (name_of(static_cast<Phase>(i)) == phase) read.position.phase = static_cast<Phase>(i);
  read.position.step = document.integer("step");
  read.position.micro_batch = document.integer("micro_batch");
  read.position.layer = document.integer("layer");
  read.position.backward = document.boolean("backward");
  read.position.call = document.text("call");
  read.position.waits_for = document.integer("waits_for");
  read.position.moves = document.integer("moved");
  return read;
}

std::string text_of(const Position& position) {
  std::string text(name_of(position.activity));
  if (position.activity == Activity::kTraining)
    text = "step " + std::to_string(position.step) + ", micro-batch " + std::to_string(position.micro_batch);
  else if (position.step >= 0)
    text += " after step " + std::to_string(position.step);
  if (position.layer >= 0)
    text += ", layer " + std::to_string(position.layer) + (position.backward ? ", backward" : ", forward");
  if (position.phase != Phase::kOther) text += ", " + std::string(name_of(position.phase));
  if (!position.call.empty()) text += ", in " + position.call;
  if (position.waits_for >= 0) text += " for rank " + std::to_string(position.waits_for);
  return text;
}

Stall find_stall(const std::vector<std::optional<RankPosition>>& positions) {
  Stall stall;
  const auto those = [&](auto&& are) {
    std::vector<Index> ranks;
    for (std::size_t rank = 0; rank < positions.size(); ++rank)
      if (are(positions[rank])) ranks.push_back(static_cast<Index>(rank));
    return ranks;
  };
  using Heard = std::optional<RankPosition>;
  const std::vector<Index> silent = those([](const Heard& rank) { return !rank; });
  const std::vector<Index> stopped = those([](const Heard& rank) { return rank && rank->is_stopped(); });
  if (!those([](const Heard& rank) { return rank && rank->moves; }).empty()) return stall;
  if (stopped.size() + silent.size() == positions.size()) return stall;
  if (!stopped.empty()) return {StallCause::kStopped, stopped};
  if (!silent.empty()) return {StallCause::kSilent, silent};
  auto least = progress_of(positions.front()->position), most = least;
  for (const Heard& rank : positions) {
    least = std::min(least, progress_of(rank->position));
    most = std::max(most, progress_of(rank->position));
  }
  // Of the ranks that are not as far as others, those that compute hold the others up; else those in no call
  // of MPI.
  const auto is_behind = [&](const Heard& rank) { return progress_of(rank->position) == least; };
  std::vector<Index> behind =
      those([&](const Heard& rank) { return is_behind(rank) && !waits(rank->position); });
  if (behind.empty())
    behind = those([&](const Heard& rank) { return is_behind(rank) && rank->position.call.empty(); });
  if (behind.empty() && least != most) behind = those(is_behind);
  if (behind.empty() || behind.size() == positions.size()) return {StallCause::kAllTogether, {}};
  return {StallCause::kBehind, behind};
}

std::string stall_text(const Stall& stall, const std::vector<std::optional<RankPosition>>& positions) {
  double seconds = 0;
  std::map<std::string, std::vector<Index>> places;  // of the ranks that wait
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (!positions[i]) continue;
    seconds = std::max(seconds, positions[i]->seconds);
    if (std::ranges::find(stall.ranks, static_cast<Index>(i)) == stall.ranks.end())
      places[text_of(positions[i]->position)].push_back(static_cast<Index>(i));
  }
  std::string text = "stalled: no rank has moved for " + std::to_string(std::lround(seconds)) + " s; ";
  for (const Index rank : stall.ranks) {
    const auto& position = positions[at(rank)];
    if (!position)
      text += "nothing is heard of rank " + std::to_string(rank);
    else
      text += who(*position) + (position->is_stopped() ? " is stopped in " : " is in ") +
              text_of(position->position);
    text += "; ";
  }
  if (stall.ranks.empty()) text += "all ranks wait for each other: ";
  bool first = true;
  for (const auto& [place, ranks] : places) {
    text += (first ? "" : "; ") + list_of(ranks) + (ranks.size() == 1 ? " waits in " : " wait in ") + place;
    first = false;
  }
  return text;
}

}  // namespace moeloom
