#include "summary/live_page.hpp"

#include "moeloom/base/errors.hpp"

#include "open/run_folder.hpp"

namespace moeloom {

std::string LivePage::write(const std::filesystem::path& run, const std::function<ReportInfo()>& info) {
  constexpr double kShareOfTime = 0.02;
  const double began = wall_clock();
  if (due_ && began < *due_) return "";
  std::string why_not;
  try {
    if (!std::filesystem::exists(run / "metrics.jsonl"))  // a mount that is gone shows what lies below it
      throw IoError((run / "metrics.jsonl").string() + " is not there");
    write_report(run / kReportFile, run / "metrics.jsonl", info());
    shown_ = true;
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  const double ended = wall_clock();
  due_ = ended + (ended - began) / kShareOfTime;
  return why_not;
}

std::string LivePage::write_last(const std::filesystem::path& run, const std::function<ReportInfo()>& info) {
  if (!shown_) return "";
  due_ = 0;
  return write(run, info);
}

}  // namespace moeloom
