#include "step_routing.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// The integers of a step in one stretch, written and read in one order: visit(number) of each.
template <typename Visit>
void for_each_integer(std::vector<RouterStatistics>& micro_batches,
                      std::vector<std::vector<Index>>& rows_per_expert, Visit visit) {
  for (RouterStatistics& routers : micro_batches) {
    ChosenCounts chosen = routers.chosen();
    for (std::int64_t& count : chosen.per_expert) visit(count);
    for (std::int64_t& count : chosen.for_balance) visit(count);
    visit(chosen.tokens);
    visit(chosen.sequences);
    routers.set_chosen(std::move(chosen));
    for (Index layer = 0; layer < routers.layers(); ++layer) {
      std::int64_t dropped = routers.dropped(layer);
      visit(dropped);
      routers.set_dropped(layer, dropped);
    }
  }
  for (auto& layer : rows_per_expert)
    for (Index& rows : layer) visit(rows);
}

}  // namespace

void StepRouting::add(RouterStatistics routers) {
  micro_batches_.push_back(std::move(routers));
  const auto& layers = decoder_.layers();
  rows_per_expert_.resize(layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].moe() == nullptr) continue;
    row_slices_ = std::max(row_slices_, layers[layer].moe()->experts().activations().slices);
    const std::vector<Index>& counts = layers[layer].moe()->experts().activations().plan.tokens_per_expert;
    rows_per_expert_[layer].resize(counts.size());
    for (std::size_t e = 0; e < counts.size(); ++e) rows_per_expert_[layer][e] += counts[e];
  }
}

void StepRouting::begin_sum() {
  std::vector<std::int64_t> integers;
  for_each_integer(micro_batches_, rows_per_expert_, [&](std::int64_t n) { integers.push_back(n); });
  sum_.emplace(mesh_.world(), std::move(integers));
}

void StepRouting::finish(StepReport& report) {
  const std::vector<std::int64_t> sums = sum_->finish();
  sum_.reset();
  auto next = sums.begin();
  for_each_integer(micro_batches_, rows_per_expert_, [&](std::int64_t& n) { n = *next++; });
  sum_reals();
  for (const RouterStatistics& routers : micro_batches_) step_.add(routers.chosen());
  report.rows_per_expert = rows_per_expert_;
  report.row_slices = row_slices_;
  report.aux_loss = report.z_loss = 0;
  const auto micro_batches = static_cast<double>(micro_batches_.size());
  const bool by_token = decoder_.balance().over == BalanceOver::kGlobalBatch;
  for (const RouterStatistics& routers : micro_batches_) {
    if (routers.chosen().tokens == 0) continue;
    // Exactly micro_batches where all have as many.
    const double part_of_tokens =
        static_cast<double>(step_.tokens) / static_cast<double>(routers.chosen().tokens);
    report.aux_loss += aux_loss_of(routers) / (by_token ? part_of_tokens : micro_batches);
    report.z_loss += z_loss(routers) / part_of_tokens;
  }
  if (exact_ && !micro_batches_.empty()) report_whole_step(report);
  report_routing(report);
}

double StepRouting::aux_loss_of(const RouterStatistics& routers) const {
  const BalanceSettings& balance = decoder_.balance();
  return aux_loss(routers, balance.over == BalanceOver::kGlobalBatch ? step_ : routers.chosen(), balance);
}

/// What does not depend on micro-batches, from sums over all of them: a mean of means would be rounded
/// otherwise for another number of them.
void StepRouting::report_whole_step(StepReport& report) const {
  RouterStatistics whole = micro_batches_.front();
  for (std::size_t i = 1; i < micro_batches_.size(); ++i) whole.merge(micro_batches_[i]);
  report.z_loss = z_loss(whole);
  if (decoder_.balance().over != BalanceOver::kMicroBatch) report.aux_loss = aux_loss_of(whole);
}

void StepRouting::sum_reals() {
  std::vector<double> reals;
  for (const RouterStatistics& routers : micro_batches_) routers.append_reals(reals);
  mesh_.world().all_sum(reals);
  std::span<const double> sums = reals;
  for (RouterStatistics& routers : micro_batches_) routers.take_reals(sums);
}

void StepRouting::report_routing(StepReport& report) const {
  report.routing.assign(rows_per_expert_.size(), {});
  report.chosen_per_expert.assign(rows_per_expert_.size(), {});
  for (std::size_t layer = 0; layer < rows_per_expert_.size(); ++layer) {
    double entropy = 0, dropped = 0, chosen = 0, tokens = 0;
    for (const RouterStatistics& routers : micro_batches_) {
      const auto l = static_cast<Index>(layer);
      entropy += routers.sums(l).entropy;
      dropped += static_cast<double>(routers.dropped(l));
      tokens += static_cast<double>(routers.chosen().tokens);
      for (const std::int64_t count : routers.chosen(l)) chosen += static_cast<double>(count);
    }
    if (rows_per_expert_[layer].empty() || tokens == 0) continue;
    const Index experts = std::ssize(rows_per_expert_[layer]);
    const auto first = step_.per_expert.begin() + static_cast<Index>(layer) * experts;
    report.chosen_per_expert[layer].assign(first, first + experts);
    report.routing[layer] = {.entropy = entropy / tokens, .dropped_share = chosen > 0 ? dropped / chosen : 0};
  }
}

}  // namespace moeloom
