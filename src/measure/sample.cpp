#include "measure/sample.hpp"

#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {

WorldSample gather(const StepSample& mine, const Communicator& world) {
  std::vector<double> numbers = {mine.seconds, static_cast<double>(mine.message_bytes),
                                 static_cast<double>(mine.row_bytes), static_cast<double>(mine.rows)};
  const std::size_t first_phase = numbers.size();
  numbers.insert(numbers.end(), mine.phase_seconds.begin(), mine.phase_seconds.end());
  const std::vector<double> all = world.all_gather(std::span<const double>(numbers));
  const double ranks = world.size();
  WorldSample sample;
  sample.expert_load = mine.expert_load;
  sample.expert_gini = mine.expert_gini;
  std::vector<Index> rows_per_rank;
  for (std::size_t at_rank = 0; at_rank < all.size(); at_rank += numbers.size()) {
    sample.seconds = std::max(sample.seconds, all[at_rank]);
    sample.message_bytes += all[at_rank + 1];
    sample.row_bytes += all[at_rank + 2];
    sample.rows += all[at_rank + 3];
    rows_per_rank.push_back(static_cast<Index>(all[at_rank + 3]));
    for (std::size_t i = 0; i < kPhases; ++i)
      sample.phase_seconds[i] += all[at_rank + first_phase + i] / ranks;
  }
  sample.rank_load = max_over_mean(rows_per_rank);
  sample.rank_gini = gini(rows_per_rank);
  return sample;
}

}  // namespace moeloom
