// RUN/report.html: a run on one page that needs nothing but itself.
#pragma once

#include "moeloom/kernels/registry.hpp"
#include "report/page.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/metrics.hpp"
#include "summary/run_time.hpp"

namespace moeloom {

/// What the page shows besides the metrics.
struct ReportInfo {
  std::string title = "moeloom run";
  /// "model", "parameters", "mesh", "data", ...: shown in this order.
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<KernelReport> kernels;
  std::string gmm_request;                    // who asked for what, empty: not shown
  std::optional<GmmDecision> gmm;             // none: not shown
  Index num_experts = 0;                      // of a sparse layer; 0: not known
  std::vector<std::vector<Index>> last_rows;  // [layer][E] of the last step; empty: not shown
  std::optional<double> validation_loss;      // none: the last that the metrics have
  Index goes_on_to = 0;                       // steps of a run that has not ended; 0: it has
  bool stopped = false;                       // before it ended
  std::string loss_unit = "nats per token";   // or "nats per byte"
  std::vector<Restart> restarts;
  std::optional<TimeUse> time;  // none: not shown
  std::string prompt;
  std::string sample;                                       // what followed the prompt; empty: not shown
  std::string configuration;                                // train.conf
  std::function<std::string(std::string_view)> words = {};  // how options are named in reasons; none: as here
};

/// A run's training loss: the mean of the last tenth of its steps, at most 50, because one step's loss
/// depends on its few sequences. Skipped steps are left out; NaN if nothing else is left.
double last_loss(const std::vector<StepMetrics>& steps);

Report report_of(const std::vector<StepMetrics>& steps, const ReportInfo& info);

/// Written beside and renamed over. Throws IoError.
void write_report(const std::filesystem::path& path, const std::filesystem::path& metrics,
                  const ReportInfo& info);

}  // namespace moeloom
