#include "io/text_file.hpp"
#include "report/page.hpp"

#include <cstdio>

#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "summary/runs_report.hpp"

namespace moeloom {

int report_command(int argc, char** argv) {
  const ReportOptions options = parse_report_options(argc, argv);
  const std::vector<RunRecord> runs = read_runs(options.runs);
  replace_file(options.out, page_html(runs_report(runs)));
  std::printf("%s: %zu run(s)\n", options.out.c_str(), runs.size());
  return 0;
}

}  // namespace moeloom
