// The name of this machine's processors, for results and for the file of rates.
#pragma once

#include <istream>
#include <string>

namespace moeloom {

/// As the system calls it.
std::string cpu_model();

/// What the system's /proc/cpuinfo says: the model name of x86, and on ARM, which gives numbers, the name
/// that belongs to them ("ARM Neoverse-V2"), or the numbers.
std::string cpu_model_of(std::istream& cpuinfo);

}  // namespace moeloom
