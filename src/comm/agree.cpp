#include "comm/agree.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// One message and the ranks that met it.
struct Complaint {
  std::string message;
  Cause cause = Cause::kRequest;
  std::vector<std::size_t> ranks;
};

/// By the lowest rank that met each.
std::vector<Complaint> distinct_complaints(const std::vector<std::string>& error_per_rank) {
  std::vector<Complaint> complaints;
  for (std::size_t rank = 0; rank < error_per_rank.size(); ++rank) {
    if (error_per_rank[rank].empty()) continue;
    const std::string error = error_per_rank[rank].substr(1);
    const auto cause = static_cast<Cause>(error_per_rank[rank].front() - '0');
    const auto same = std::find_if(complaints.begin(), complaints.end(),
                                   [&](const Complaint& c) { return c.message == error; });
    if (same != complaints.end())
      same->ranks.push_back(rank);
    else
      complaints.push_back({error, cause, {rank}});
  }
  return complaints;
}

}  // namespace

std::string ranks_text(std::span<const std::size_t> ranks, std::span<const Index> names) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const std::size_t rank : ranks)
    text += (names.empty() ? std::to_string(rank) : std::to_string(names[rank])) + ',';
  text.pop_back();
  return text;
}

void throw_if_any_failed(const Communicator& comm, const std::string& my_error, Cause my_cause) {
  throw_if_any_failed(comm, my_error, my_cause, {});
}

void throw_if_any_failed(const Communicator& comm, const std::string& my_error, Cause my_cause,
                         std::span<const Index> names) {
  // A digit for the cause stands before each text.
  const std::string mine = my_error.empty() ? "" : std::to_string(static_cast<int>(my_cause)) + my_error;
  const std::vector<Complaint> complaints = distinct_complaints(comm.all_gather_text(mine));
  if (complaints.empty()) return;
  const Cause cause = complaints.front().cause;
  if (std::ssize(complaints.front().ranks) == comm.size())
    throw AgreedError(complaints.front().message, cause);
  std::string text;
  for (const Complaint& complaint : complaints) {
    if (!text.empty()) text += '\n';
    // "rank 2: no such file", "ranks 1,3: no such file".
    text += ranks_text(complaint.ranks, names) + ": " + complaint.message;
  }
  throw AgreedError(text, cause);
}

}  // namespace moeloom
