#include "summary/live_page.hpp"

#include "moeloom/base/errors.hpp"

#include "open/run_folder.hpp"

namespace moeloom {

std::string LivePage::write(const std::filesystem::path& run, const std::function<ReportInfo()>& info) {
  constexpr int kTimesAsLong = 50;
  const auto began = Clock::now();
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
  const auto ended = Clock::now();
  due_ = ended + kTimesAsLong * (ended - began);
  return why_not;
}

std::string LivePage::write_last(const std::filesystem::path& run, const std::function<ReportInfo()>& info) {
  if (!shown_) return "";
  due_.reset();
  return write(run, info);
}

}  // namespace moeloom
