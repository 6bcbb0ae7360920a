#include "summary/live_page.hpp"

#include "moeloom/base/errors.hpp"

#include "open/run_folder.hpp"

namespace moeloom {

std::string LivePage::write(const std::filesystem::path& run, const ReportInfo& info) try {
  constexpr double kShareOfTime = 0.02;
  const double began = wall_clock();
  if (due_ && began < *due_) return "";
  write_report(run / kReportFile, run / "metrics.jsonl", info);
  const double ended = wall_clock();
  due_ = ended + (ended - began) / kShareOfTime;
  return "";
} catch (const IoError& error) {
  return error.what();
}

std::string LivePage::write_last(const std::filesystem::path& run, const ReportInfo& info) {
  if (!due_) return "";
  due_ = 0;
  return write(run, info);
}

}  // namespace moeloom
