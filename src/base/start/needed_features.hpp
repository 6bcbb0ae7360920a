// What a build for oneself (-march=native) asks of the processor that it starts on.
#pragma once

#include <cstddef>

namespace moeloom {

/// A bit of CPUID. Plain data: whoever reads it may not yet use what it tells of.
struct CpuFeature {
  enum Register { kEax, kEbx, kEcx, kEdx };

  const char* name;
  unsigned leaf;
  unsigned subleaf;
  Register in;
  int bit;
  unsigned kept = 0;  // registers that the system must keep for it, as bits of XCR0
};

/// Those that the compiler was told of, the most telling first; without what lies behind a check at run time.
extern const CpuFeature kNeededFeatures[];
extern const std::size_t kNeededFeatureCount;

}  // namespace moeloom
