#include "plan/rates/cpu_model.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <string_view>

namespace moeloom {
namespace {

struct Part {
  std::string_view implementer, part, name;
};

// MIDR_EL1 of servers' cores, as Linux lists them in arch/arm64/include/asm/cputype.h.
constexpr std::array kParts = {
    Part{"0x41", "0xd08", "ARM Cortex-A72"},   Part{"0x41", "0xd0b", "ARM Cortex-A76"},
    Part{"0x41", "0xd0c", "ARM Neoverse-N1"},  Part{"0x41", "0xd40", "ARM Neoverse-V1"},
    Part{"0x41", "0xd49", "ARM Neoverse-N2"},  Part{"0x41", "0xd4f", "ARM Neoverse-V2"},
    Part{"0x41", "0xd84", "ARM Neoverse-V3"},  Part{"0x41", "0xd8e", "ARM Neoverse-N3"},
    Part{"0x43", "0x0af", "Cavium ThunderX2"}, Part{"0x46", "0x001", "Fujitsu A64FX"},
    Part{"0x48", "0xd01", "HiSilicon TSV110"}, Part{"0xc0", "0xac3", "Ampere-1"},
    Part{"0xc0", "0xac4", "Ampere-1A"}};

std::string name_of_part(const std::string& implementer, const std::string& part) {
  const auto* known = std::ranges::find_if(
      kParts, [&](const Part& p) { return p.implementer == implementer && p.part == part; });
  if (known != kParts.end()) return std::string(known->name);
  return "ARM implementer " + implementer + " part " + part;
}

}  // namespace

std::string cpu_model_of(std::istream& cpuinfo) {
  std::map<std::string, std::string> first;  // of the first processor that says it
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    first.try_emplace(name, line.substr(colon + 2));
  }
  if (first.contains("model name")) return first["model name"];
  if (first.contains("CPU implementer") && first.contains("CPU part"))
    return name_of_part(first["CPU implementer"], first["CPU part"]);
  return "unknown CPU";
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  return cpu_model_of(file);
}

}  // namespace moeloom
