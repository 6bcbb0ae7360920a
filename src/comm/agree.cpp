#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// One message and the ranks that met it.
struct Complaint {
  std::string message;
  std::vector<std::size_t> ranks;
};

/// By the lowest rank that met each.
std::vector<Complaint> distinct_complaints(const std::vector<std::string>& error_per_rank) {
  std::vector<Complaint> complaints;
  for (std::size_t rank = 0; rank < error_per_rank.size(); ++rank) {
    const std::string& error = error_per_rank[rank];
    if (error.empty()) continue;
    const auto same = std::find_if(complaints.begin(), complaints.end(),
                                   [&](const Complaint& c) { return c.message == error; });
    if (same != complaints.end())
      same->ranks.push_back(rank);
    else
      complaints.push_back({error, {rank}});
  }
  return complaints;
}

/// "rank 2: no such file", "ranks 1,3: no such file".
std::string with_ranks(const Complaint& complaint) {
  std::string text = complaint.ranks.size() == 1 ? "rank " : "ranks ";
  for (const std::size_t rank : complaint.ranks) text += std::to_string(rank) + ',';
  text.back() = ':';
  return text + ' ' + complaint.message;
}

}  // namespace

void throw_if_any_failed(const Communicator& comm, const std::string& my_error) {
  const std::vector<Complaint> complaints = distinct_complaints(comm.all_gather_text(my_error));
  if (complaints.empty()) return;
  if (std::ssize(complaints.front().ranks) == comm.size()) throw AgreedError(complaints.front().message);
  std::string text;
  for (const Complaint& complaint : complaints) {
    if (!text.empty()) text += '\n';
    text += with_ranks(complaint);
  }
  throw AgreedError(text);
}

}  // namespace moeloom
