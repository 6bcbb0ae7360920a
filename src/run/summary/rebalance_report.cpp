#include "summary/rebalance_report.hpp"

#include "base/text.hpp"
#include "report/html.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

/// Decisions of all steps, and what they made travel; whatever integers a file has, the sums are in range.
struct Decisions {
  double steps = 0, made = 0, even = 0, does_not_pay = 0, no_room = 0, bytes = 0;

  void add(const RebalanceMetrics& step) {
    const auto add_to = [](double& sum, Index count) { sum += static_cast<double>(count); };
    ++steps;
    add_to(made, step.made), add_to(even, step.even);
    add_to(does_not_pay, step.does_not_pay), add_to(no_room, step.no_room);
    add_to(bytes, step.weight_bytes), add_to(bytes, step.gradient_bytes);
  }
  std::string text() const {
    return "means of the steps, milliseconds by the rates that decide; replicas in " + readable(made) +
           " layers of micro-batches, " + readable(even) + " were even, in " + readable(does_not_pay) +
           " none paid, in " + readable(no_room) + " none could help; " + readable_bytes(bytes / steps) +
           " of weights and gradients a step";
  }
};

/// Means over the steps in which they were known.
struct RowOfMeans {
  std::array<double, 5> sums{};
  double steps = 0;

  void add(const std::array<double, 5>& figures) {
    if (!(figures[0] > 0)) return;  // a dense layer, or an old line
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += figures[i];
    ++steps;
  }
  void add_to(Table& table, const std::string& name) const {
    if (steps == 0) return;
    table.rows.push_back({name});
    for (const double sum : sums) table.rows.back().push_back(readable(sum / steps));
  }
};

}  // namespace

Section rebalance_section(const std::vector<StepMetrics>& steps) {
  Decisions decisions;
  std::vector<RowOfMeans> layers;
  RowOfMeans all;
  for (const StepMetrics& step : steps) {
    if (!step.rebalance) continue;
    const RebalanceMetrics& r = *step.rebalance;
    decisions.add(r);
    all.add({r.load_before, r.load_after, r.uneven_ms, r.saved_ms, static_cast<double>(r.replicas)});
    layers.resize(std::max(layers.size(), step.layers.size()));
    for (std::size_t i = 0; i < step.layers.size(); ++i) {
      const LayerMetrics& l = step.layers[i];
      layers[i].add({l.rank_load_before, l.rank_load_after, l.uneven_ms, l.saved_ms, l.replicas});
    }
  }
  if (decisions.steps == 0) return {};
  Section section{.title = "Uneven rows", .note = decisions.text(), .wide = true};
  section.table = {.heading = {"layer", "fullest rank over mean", "with replicas", "ms over even rows",
                               "ms saved", "replicas"},
                   .css_class = "numbers",
                   .last_is_sum = true};
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].add_to(section.table, std::to_string(i));
  all.add_to(section.table, "in all");
  return section;
}

}  // namespace moeloom
