#include "dispatch/count_exchange.hpp"

#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <numeric>

#include "dispatch/conservation.hpp"

namespace moeloom {

ReceivedCounts exchange_counts(const Communicator& ep, std::span<const std::int64_t> tokens_per_expert,
                               std::span<const std::int64_t> sent_per_rank,
                               std::span<const std::int64_t> beside) {
  const Index experts = std::ssize(tokens_per_expert);
  const Index ranks = ep.size();
  // Equal blocks for MPI_Alltoall: ranks with one expert less pad theirs. Their sum and the number beside
  // them are last.
  const Index most = experts_of(experts, ranks, 0).count;
  const Index block = most + 1 + (beside.empty() ? 0 : 1);
  std::vector<std::int64_t> sent(at(block * ranks));
  for (Index rank = 0; rank < ranks; ++rank) {
    const ExpertRange held = experts_of(experts, ranks, rank);
    std::copy_n(tokens_per_expert.begin() + held.begin, held.count, sent.begin() + rank * block);
    sent[at(rank * block + most)] = sent_per_rank[at(rank)];
    if (!beside.empty()) sent[at((rank + 1) * block - 1)] = beside[at(rank)];
  }
  std::vector<std::int64_t> arrived(sent.size());
  ep.all_to_all(sent, arrived);
  const Index mine = experts_of(experts, ranks, ep.rank()).count;
  ReceivedCounts received;
  received.of_experts.reserve(at(mine * ranks));
  for (Index rank = 0; rank < ranks; ++rank) {
    const auto first = arrived.begin() + rank * block;
    check_told(rank, ep.rank(), std::reduce(first, first + mine, std::int64_t{0}), first[most]);
    received.of_experts.insert(received.of_experts.end(), first, first + mine);
    if (!beside.empty()) received.beside.push_back(first[block - 1]);
  }
  return received;
}

std::vector<Index> exchange_first_rows(const Communicator& ep, std::span<const std::int64_t> received,
                                       Index num_experts) {
  const Index ranks = ep.size();
  const Index most = experts_of(num_experts, ranks, 0).count, mine = std::ssize(received) / ranks;
  const std::vector<Index> first = first_rows_of_sources(received, ranks);
  std::vector<std::int64_t> sent(at(most * ranks)), arrived(sent.size());
  for (Index rank = 0; rank < ranks; ++rank)
    std::copy_n(first.begin() + rank * mine, mine, sent.begin() + rank * most);
  ep.all_to_all(sent, arrived);
  std::vector<Index> first_rows;
  first_rows.reserve(at(num_experts));
  for (Index rank = 0; rank < ranks; ++rank) {
    const auto of_holder = arrived.begin() + rank * most;
    first_rows.insert(first_rows.end(), of_holder, of_holder + experts_of(num_experts, ranks, rank).count);
  }
  return first_rows;
}

}  // namespace moeloom
