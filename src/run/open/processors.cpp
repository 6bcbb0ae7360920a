#include "open/processors.hpp"

#include "base/text.hpp"
#include "comm/control_groups.hpp"
#include "moeloom/run/options.hpp"

#include <algorithm>
#include <array>
#include <sched.h>
#include <thread>

namespace moeloom {
namespace {

constexpr int kBits = 64;
using ProcessorMask = std::array<std::int64_t, CPU_SETSIZE / kBits>;

bool holds(std::span<const std::int64_t> mask, int processor) {
  return (static_cast<std::uint64_t>(mask[static_cast<std::size_t>(processor / kBits)]) >>
              (processor % kBits) &
          1U) != 0;
}

void insert(ProcessorMask& mask, int processor) {
  auto& word = mask[static_cast<std::size_t>(processor / kBits)];
  word =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(word) | std::uint64_t{1} << (processor % kBits));
}

/// Where the system does not say, all that there are.
ProcessorMask mask_of_this_rank() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  ProcessorMask mask{};
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (known ? CPU_ISSET(static_cast<std::size_t>(processor), &set) : processor < all)
      insert(mask, processor);
  return mask;
}

/// In thousandths of a processor, and whose it is; nobody's where there is no limit.
using Quota = std::array<std::int64_t, 2>;

Quota own_quota() {
  const auto quota = processor_quota();
  return quota ? Quota{static_cast<std::int64_t>(1000 * quota->processors), quota->group} : Quota{};
}

std::vector<std::int64_t> masks_of(const Communicator& node) {
  const ProcessorMask mine = mask_of_this_rank();
  return node.all_gather(std::span<const std::int64_t>(mine));
}

constexpr double kRounding = 1e-6;  // thirds add up to a little less than one

double part_of_processors(std::span<const std::int64_t> masks, int ranks, int rank) {
  const std::size_t words = masks.size() / static_cast<std::size_t>(ranks);
  const auto mask_of = [&](int r) { return masks.subspan(static_cast<std::size_t>(r) * words, words); };
  double part = 0;
  for (int processor = 0; processor < static_cast<int>(words) * kBits; ++processor) {
    if (!holds(mask_of(rank), processor)) continue;
    int sharing = 0;
    for (int r = 0; r < ranks; ++r) sharing += holds(mask_of(r), processor) ? 1 : 0;
    part += 1.0 / sharing;
  }
  return part;
}

}  // namespace

int share_of_processors(std::span<const std::int64_t> masks, int ranks, int rank) {
  return std::max(1, static_cast<int>(part_of_processors(masks, ranks, rank) + kRounding));
}

int share_within_quota(int share, std::span<const std::int64_t> quotas, int rank) {
  const auto quota_of = [&](std::size_t r) { return quotas.subspan(2 * r, 2); };
  const auto mine = quota_of(static_cast<std::size_t>(rank));
  if (mine[0] == 0) return share;
  std::int64_t sharing = 0;
  for (std::size_t r = 0; r < quotas.size() / 2; ++r)
    sharing += std::ranges::equal(quota_of(r), mine) ? 1 : 0;
  return std::max(1, std::min(share, static_cast<int>(mine[0] / sharing / 1000)));
}

int threads_for(Index asked, std::optional<Index> omp_num_threads, const Communicator& node) {
  // Gathered whatever is asked: the environment may differ from rank to rank.
  const std::vector<std::int64_t> masks = masks_of(node);
  const Quota quota = own_quota();
  const std::vector<std::int64_t> quotas = node.all_gather(std::span<const std::int64_t>(quota));
  if (asked > 0) return static_cast<int>(asked);
  if (omp_num_threads) return static_cast<int>(*omp_num_threads);
  const int share = share_of_processors(masks, node.size(), node.rank());
  return std::min(share_within_quota(share, quotas, node.rank()), static_cast<int>(kMostThreads));
}

}  // namespace moeloom
