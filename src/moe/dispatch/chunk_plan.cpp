#include "moe/dispatch/chunk_plan.hpp"

#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"

#include <numeric>

namespace moeloom {
namespace {

/// Appends what lies before each of the cuts [chunks + 1] of a rank, of count_of(expert) places an expert,
/// `first` before all of them; returns the place after the last.
template <typename CountOf>
Index append_offsets(std::span<const std::int64_t> cuts, Index first, CountOf count_of,
                     std::vector<Index>& offsets) {
  Index expert = 0;
  for (const std::int64_t cut : cuts) {
    for (; expert < cut; ++expert) first += count_of(expert);
    offsets.push_back(first);
  }
  return first;
}

/// One stretch a rank, one behind the other.
void set_stretches(const std::vector<Index>& per_rank, std::vector<Index>& offsets) {
  offsets.clear();
  Index first = 0;
  for (const Index count : per_rank) {
    offsets.push_back(first);
    offsets.push_back(first += count);
  }
}

}  // namespace

std::vector<std::int64_t> cut_experts(std::span<const Index> rows_per_expert, Index chunks) {
  require(chunks >= 1, "experts are cut into one chunk at least");
  const Index experts = std::ssize(rows_per_expert);
  const auto rows = std::reduce(rows_per_expert.begin(), rows_per_expert.end(), Index{0});
  std::vector<std::int64_t> cuts = {0};
  Index expert = 0;
  Index before = 0;  // rows of the experts before it
  for (Index chunk = 1; chunk < chunks; ++chunk) {
    const auto distance = [&](Index place) { return std::abs(chunks * place - chunk * rows); };
    for (; expert < experts && distance(before + rows_per_expert[at(expert)]) <= distance(before); ++expert)
      before += rows_per_expert[at(expert)];
    cuts.push_back(expert);
  }
  cuts.push_back(experts);
  return cuts;
}

void plan_whole(DispatchPlan& plan) {
  plan.chunks.chunks = 1;
  plan.chunks.experts.assign({0, plan.grouped_rows().groups()});
  plan.chunks.landing.assign({0, plan.rows()});
  set_stretches(plan.sent_per_rank, plan.chunks.leaving);
  set_stretches(plan.received_per_rank, plan.chunks.arriving);
}

void plan_chunks(std::span<const std::int64_t> cuts, Index rank, DispatchPlan& plan) {
  const Index ranks = plan.ranks, experts = std::ssize(plan.tokens_per_expert);
  require(std::ssize(cuts) % ranks == 0 && std::ssize(cuts) >= 2 * ranks, "cuts must be [ep, chunks + 1]");
  const std::size_t places = cuts.size() / at(ranks);
  ChunkPlan& chunks = plan.chunks;
  chunks.chunks = static_cast<Index>(places) - 1;
  for (auto* const offsets : {&chunks.landing, &chunks.leaving, &chunks.arriving}) offsets->clear();
  const std::span<const std::int64_t> mine = cuts.subspan(at(rank) * places, places);
  chunks.experts.assign(mine.begin(), mine.end());
  const GroupedRows rows = plan.grouped_rows();
  append_offsets(
      mine, 0, [&](Index expert) { return rows.of_group(expert); }, chunks.landing);
  Index leaving = 0, arriving = 0;
  for (Index other = 0; other < ranks; ++other) {
    const std::span<const std::int64_t> theirs = cuts.subspan(at(other) * places, places);
    const ExpertRange held = experts_of(experts, ranks, other);
    require(theirs.front() == 0 && theirs.back() == held.count, "a rank's chunks must hold all its experts");
    leaving = append_offsets(
        theirs, leaving, [&](Index expert) { return plan.tokens_per_expert[at(held.begin + expert)]; },
        chunks.leaving);
    arriving = append_offsets(
        mine, arriving, [&](Index expert) { return rows.of_source(expert, other); }, chunks.arriving);
  }
}

}  // namespace moeloom
