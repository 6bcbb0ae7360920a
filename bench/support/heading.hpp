// What stands above every table: what was built, and where it ran.
#pragma once

#include <string>

namespace moeloom::bench {

/// "commit 0123abc, threads 1, AMD EPYC".
std::string environment_line(int threads);
/// The short hash of the working directory's repository, "unknown" outside one.
std::string commit_text();

}  // namespace moeloom::bench
