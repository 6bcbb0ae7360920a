#include "plan/rates/cpu_model.hpp"

#include <sstream>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::string model_in(const std::string& cpuinfo) {
  std::istringstream file(cpuinfo);
  return cpu_model_of(file);
}

TEST(CpuModel, IsWhatTheSystemSaysOrWhatItsNumbersMean) {
  const std::string arm = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\nCPU implementer\t: ";
  EXPECT_EQ(model_in("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\n\nmodel name\t: other\n"),
            "AMD EPYC 9B14");
  EXPECT_EQ(model_in(arm + "0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"),
            "ARM Neoverse-N1");
  EXPECT_EQ(model_in(arm + "0x46\nCPU part\t: 0x001\n"), "Fujitsu A64FX");
  EXPECT_EQ(model_in(arm + "0x99\nCPU part\t: 0x123\n"), "ARM implementer 0x99 part 0x123");
}

TEST(CpuModel, IsUnknownWhereNothingIsSaid) {
  for (const char* text : {"", "\n", ": \n", "model name\n", "processor\t: 0\nCPU implementer\t: 0x41\n"})
    EXPECT_EQ(model_in(text), "unknown CPU") << text;
}

}  // namespace
}  // namespace moeloom
