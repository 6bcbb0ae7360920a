#include "experts/near_rows.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// A piece reads the expert's weights once more, which fewer rows than these take longer to pay for than a
/// chunk takes to come.
constexpr Index kLeastRows = 64;

}  // namespace

NearRows::NearRows(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip)
    : dispatcher_(dispatcher), trip_(trip), rows_(pass.rows) {
  first_rows_.push_back(0);
  for (Index expert = 0; expert < rows_.groups(); ++expert)
    first_rows_.push_back(first_rows_.back() + rows_.of_group(expert));
  taken_.resize(at(rows_.groups()));
  if (!pass.kernels.grouped_matmul.rows_alone) return;
  const Stretch ranks = dispatcher.near_ranks();
  const Index leaves = rows_.sources / trip.plan.ranks;  // of each rank, where sums are exact
  near_ = {ranks.begin * leaves, ranks.end * leaves};
}

ExpertChunk NearRows::piece(Index expert, Stretch sources) const {
  Index first = first_rows_[at(expert)], rows = 0;
  for (Index source = 0; source < sources.end; ++source)
    (source < sources.begin ? first : rows) += rows_.of_source(expert, source);
  return {{expert, expert + 1}, {first, first + rows}, sources};
}

std::optional<ExpertChunk> NearRows::take(Index chunk) {
  if (near_.size() == 0) return std::nullopt;
  next_ = std::max(next_, trip_.plan.chunks.experts_of(chunk).begin);
  while (next_ < rows_.groups()) {
    const ExpertChunk near = piece(next_++, near_);
    if (near.rows.size() < kLeastRows) continue;
    taken_[at(near.experts.begin)] = 1;
    if (!landed_) dispatcher_.await_near(trip_);
    landed_ = true;
    return near;
  }
  return std::nullopt;
}

std::vector<ExpertChunk> NearRows::rest_of(Index chunk) {
  const Stretch all = trip_.plan.chunks.experts_of(chunk);  // of which replicas are not this pass's
  const Stretch experts{std::min(all.begin, rows_.groups()), std::min(all.end, rows_.groups())};
  std::vector<ExpertChunk> pieces;
  for (Index expert = experts.begin; expert < experts.end;) {
    if (taken_[at(expert)] != 0) {
      for (const Stretch sources : {Stretch{0, near_.begin}, Stretch{near_.end, rows_.sources}})
        if (const ExpertChunk far = piece(expert, sources); far.rows.size() > 0) pieces.push_back(far);
      ++expert;
      continue;
    }
    const Index first = expert;
    while (expert < experts.end && taken_[at(expert)] == 0) ++expert;
    pieces.push_back({{first, expert}, {first_rows_[at(first)], first_rows_[at(expert)]}});
  }
  return pieces;
}

}  // namespace moeloom
