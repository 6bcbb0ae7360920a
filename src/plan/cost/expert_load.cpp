#include "plan/cost/expert_load.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

#include "cost/real.hpp"

namespace moeloom {

std::vector<double> rows_with_fullest(Index num_experts, double fullest) {
  const double rest = num_experts == 1 ? 1 : (real(num_experts) - fullest) / real(num_experts - 1);
  std::vector<double> rows(at(num_experts), rest);
  if (num_experts > 1) rows.front() = fullest;
  return rows;
}

std::vector<double> rank_loads(std::span<const double> expert_rows, Index ep) {
  std::vector<double> loads(at(ep), 1.0);
  const double all = std::accumulate(expert_rows.begin(), expert_rows.end(), 0.0);
  for (Index rank = 0; rank < ep && all > 0; ++rank) {
    const ExpertRange mine = experts_of(std::ssize(expert_rows), ep, rank);
    const auto rows = expert_rows.subspan(at(mine.begin), at(mine.count));
    loads[at(rank)] = std::accumulate(rows.begin(), rows.end(), 0.0) * real(ep) / all;
  }
  return loads;
}

double busiest_load(const Job& job, std::span<const double> expert_rows) {
  const std::vector<double> loads = rank_loads(expert_rows, job.layout.mesh.ep);
  const Index world = job.layout.mesh.world();
  const Index on_node = std::min(job.layout.ranks_per_node, world);
  const Index own = std::clamp<Index>(job.layout.processors_per_node / job.layout.threads, 1, on_node);
  double busiest = 0;
  for (Index first = 0; first < world; first += on_node)
    for (Index processor = 0; processor < own; ++processor) {
      double sum = 0;
      for (Index rank = processor; rank < on_node && first + rank < world; rank += own)
        sum += loads[at(job.layout.mesh.ep_rank(first + rank))];
      busiest = std::max(busiest, sum);
    }
  return std::max(1.0, busiest / real(ceil_div(on_node, own)));
}

double mean_busiest_load(const Job& job) {
  if (job.exchange.expert_rows.empty()) return 1;
  double sum = 0;
  for (const std::vector<double>& rows : job.exchange.expert_rows) sum += busiest_load(job, rows);
  return sum / real(std::ssize(job.exchange.expert_rows));
}

double fullest_rank_load(const Job& job) {
  if (job.exchange.expert_rows.empty()) return 1;
  std::vector<double> sums(at(job.layout.mesh.ep));
  for (const std::vector<double>& rows : job.exchange.expert_rows) {
    const std::vector<double> loads = rank_loads(rows, job.layout.mesh.ep);
    for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += loads[rank];
  }
  return std::ranges::max(sums) / real(std::ssize(job.exchange.expert_rows));
}

}  // namespace moeloom
