#include "door.hpp"

#include "base/text.hpp"
#include "comm/agree.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unistd.h>

#include "guard.hpp"

namespace moeloom::c {
namespace {

std::string host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

/// Told in ml_group_enter() by a program at its end.
constexpr std::string_view kEnd = "the end of the program";

std::string advice(const std::vector<Index>& ended) {
  if (ended.empty()) return "every rank makes as many forwards, backwards and batches, in one order";
  const bool one = ended.size() == 1;
  const std::vector<std::size_t> ranks(ended.begin(), ended.end());
  return ranks_text(ranks) + (one ? " has ended its program; its" : " have ended their programs; their") +
         " own error stands above, if there was one";
}

}  // namespace

/// What each tells the others.
struct Door::Told {
  std::int64_t number = 0;  // of calls on this group, this one included
  std::int64_t status = ML_OK;
  std::array<Index, 2> numbers = {};
  std::array<char, 48> what = {};  // zeros behind the text
  std::array<char, 48> of = {};
  bool same_as(const Told& other) const {
    const bool failed = status != ML_OK || other.status != ML_OK;  // then its own part may be missing
    return number == other.number && what == other.what && (failed || of == other.of);
  }
  std::string text(bool with_its_own) const {
    return std::string(what.data()) + (with_its_own ? of.data() : "") + " (call " + std::to_string(number) +
           ")";
  }
};

Door::Door(const Communicator& ranks, std::vector<Index> names, Index all)
    : ranks_(&ranks), meeting_(ranks), names_(std::move(names)), all_(all) {}

Door::Told Door::told_by(Index rank) const {
  Told told;
  std::memcpy(&told, meeting_.told_by(rank).data(), sizeof(Told));
  return told;
}

void Door::break_off(std::string text, ml_status status) {
  broken_ = std::move(text);
  throw Refusal(status, broken_);
}

std::string Door::missing_text(const Call& call, const std::vector<Index>& missing) const {
  const std::vector<std::size_t> ranks(missing.begin(), missing.end());
  return "rank " + std::to_string(names_[at(ranks_->rank())]) + " of " + std::to_string(all_) + " (" +
         host() + ") waited " + readable(timeout_, 3) + " s in " + call.what + " for " +
         ranks_text(ranks, names_) + ", which did not come" +
         (!behind_another_      ? ""
          : missing.size() == 1 ? " or is held up by a rank of its row"
                                : " or are held up by a rank of their row");
}

std::string Door::different_calls() const {
  std::vector<std::pair<Told, std::vector<std::size_t>>> calls;
  for (std::size_t rank = 0; rank < at(ranks_->size()); ++rank) {
    const Told told = told_by(static_cast<Index>(rank));
    const auto same = std::ranges::find_if(calls, [&](const auto& call) { return call.first.same_as(told); });
    if (same == calls.end())
      calls.push_back({told, {rank}});
    else
      same->second.push_back(rank);
  }
  std::string text = "ranks do not make the same calls: ";
  const bool in_one = std::ranges::all_of(
      calls, [&](const auto& call) { return call.first.what == calls.front().first.what; });
  std::vector<Index> ended;
  for (const auto& [told, ranks] : calls) {
    text +=
        ranks_text(ranks, names_) + (ranks.size() == 1 ? " is in " : " are in ") + told.text(in_one) + ", ";
    if (told.what.data() == kEnd)
      for (const std::size_t rank : ranks) ended.push_back(names_[rank]);
  }
  text.replace(text.size() - 2, 2, "; ");
  return text + advice(ended);
}

ml_status Door::exchange(const Call& call, ml_status status) {
  if (!broken_.empty()) throw Refusal(ML_MPI, broken_);
  Told mine{.number = ++calls_, .status = status, .numbers = call.numbers};
  largest_ = {};
  call.what.copy(mine.what.data(), mine.what.size() - 1);
  call.of.copy(mine.of.data(), mine.of.size() - 1);
  const std::vector<Index> missing = meeting_.meet(std::as_bytes(std::span(&mine, 1)), timeout_);
  if (!missing.empty()) break_off(missing_text(call, missing));
  std::int64_t failed = ML_OK;
  bool same = true;
  for (Index rank = 0; rank < ranks_->size(); ++rank) {
    const Told told = told_by(rank);
    same = same && told.same_as(mine);
    for (std::size_t i = 0; i < largest_.size(); ++i) largest_[i] = std::max(largest_[i], told.numbers[i]);
    if (failed == ML_OK) failed = told.status;
  }
  if (!same) break_off(different_calls());
  return static_cast<ml_status>(failed);
}

void Door::meet(const Call& call) {
  exchange(call, ML_OK);
}

void Door::meet(const Call& call, ml_status status, const std::string& error) {
  const ml_status failed = exchange(call, status);
  if (failed == ML_OK) return;
  try {
    throw_if_any_failed(*ranks_, error, Cause::kRequest, names_);
  } catch (const AgreedError& agreed) {
    throw Refusal(failed, agreed.what());
  }
}

}  // namespace moeloom::c
