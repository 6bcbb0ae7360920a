#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"

#include <map>

namespace moeloom {
namespace {

std::string ranks_text(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void throw_if_any_failed(const Communicator& comm, const std::string& my_error) {
  const std::vector<std::string> errors = comm.all_gather_text(my_error);
  std::map<std::string, std::vector<std::size_t>> ranks_by_error;
  for (std::size_t rank = 0; rank < errors.size(); ++rank)
    if (!errors[rank].empty()) ranks_by_error[errors[rank]].push_back(rank);
  if (ranks_by_error.empty()) return;
  std::string text;
  for (const auto& [error, ranks] : ranks_by_error) {
    if (!text.empty()) text += '\n';
    text += ranks.size() == errors.size() ? error : ranks_text(ranks) + ": " + error;
  }
  throw AgreedError(text);
}

}  // namespace moeloom
