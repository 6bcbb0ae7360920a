// Compiled as the rest of the program is, and nothing but data. Tiles of pairs (AVX512_BF16) and of matrices
// (AMX) are missing, as they lie behind checks of their own.
#include "start/needed_features.hpp"

namespace moeloom {

constinit const CpuFeature kNeededFeatures[] = {
#ifdef __AVX512F__
    {"AVX512F", 7, 0, CpuFeature::kEbx, 16, 0xE6},
#endif
#ifdef __AVX512DQ__
    {"AVX512DQ", 7, 0, CpuFeature::kEbx, 17},
#endif
#ifdef __AVX512BW__
    {"AVX512BW", 7, 0, CpuFeature::kEbx, 30},
#endif
#ifdef __AVX512VL__
    {"AVX512VL", 7, 0, CpuFeature::kEbx, 31},
#endif
#ifdef __AVX512CD__
    {"AVX512CD", 7, 0, CpuFeature::kEbx, 28},
#endif
#ifdef __AVX512VBMI__
    {"AVX512_VBMI", 7, 0, CpuFeature::kEcx, 1},
#endif
#ifdef __AVX512VBMI2__
    {"AVX512_VBMI2", 7, 0, CpuFeature::kEcx, 6},
#endif
#ifdef __AVX512IFMA__
    {"AVX512_IFMA", 7, 0, CpuFeature::kEbx, 21},
#endif
#ifdef __AVX512VNNI__
    {"AVX512_VNNI", 7, 0, CpuFeature::kEcx, 11},
#endif
#ifdef __AVX512BITALG__
    {"AVX512_BITALG", 7, 0, CpuFeature::kEcx, 12},
#endif
#ifdef __AVX512VPOPCNTDQ__
    {"AVX512_VPOPCNTDQ", 7, 0, CpuFeature::kEcx, 14},
#endif
#ifdef __AVX512FP16__
    {"AVX512_FP16", 7, 0, CpuFeature::kEdx, 23},
#endif
#ifdef __AVX2__
    {"AVX2", 7, 0, CpuFeature::kEbx, 5},
#endif
#ifdef __FMA__
    {"FMA", 1, 0, CpuFeature::kEcx, 12},
#endif
#ifdef __AVX__
    {"AVX", 1, 0, CpuFeature::kEcx, 28, 0x6},
#endif
#ifdef __AVXVNNI__
    {"AVX_VNNI", 7, 1, CpuFeature::kEax, 4},
#endif
#ifdef __AVXIFMA__
    {"AVX_IFMA", 7, 1, CpuFeature::kEax, 23},
#endif
#ifdef __AVXVNNIINT8__
    {"AVX_VNNI_INT8", 7, 1, CpuFeature::kEdx, 4},
#endif
#ifdef __AVXVNNIINT16__
    {"AVX_VNNI_INT16", 7, 1, CpuFeature::kEdx, 10},
#endif
#ifdef __CMPCCXADD__
    {"CMPCCXADD", 7, 1, CpuFeature::kEax, 7},
#endif
#ifdef __APX_F__
    {"APX_F", 7, 1, CpuFeature::kEdx, 21, 1u << 19},
#endif
#ifdef __PCLMUL__
    {"PCLMULQDQ", 1, 0, CpuFeature::kEcx, 1},
#endif
#ifdef __F16C__
    {"F16C", 1, 0, CpuFeature::kEcx, 29},
#endif
#ifdef __GFNI__
    {"GFNI", 7, 0, CpuFeature::kEcx, 8},
#endif
#ifdef __BMI2__
    {"BMI2", 7, 0, CpuFeature::kEbx, 8},
#endif
#ifdef __BMI__
    {"BMI", 7, 0, CpuFeature::kEbx, 3},
#endif
#ifdef __ADX__
    {"ADX", 7, 0, CpuFeature::kEbx, 19},
#endif
#ifdef __LZCNT__
    {"LZCNT", 0x80000001, 0, CpuFeature::kEcx, 5},
#endif
#ifdef __FMA4__
    {"FMA4", 0x80000001, 0, CpuFeature::kEcx, 16},
#endif
#ifdef __XOP__
    {"XOP", 0x80000001, 0, CpuFeature::kEcx, 11},
#endif
#ifdef __TBM__
    {"TBM", 0x80000001, 0, CpuFeature::kEcx, 21},
#endif
#ifdef __MOVBE__
    {"MOVBE", 1, 0, CpuFeature::kEcx, 22},
#endif
#ifdef __POPCNT__
    {"POPCNT", 1, 0, CpuFeature::kEcx, 23},
#endif
#ifdef __SSE4_2__
    {"SSE4.2", 1, 0, CpuFeature::kEcx, 20},
#endif
#ifdef __SSE4_1__
    {"SSE4.1", 1, 0, CpuFeature::kEcx, 19},
#endif
#ifdef __SSSE3__
    {"SSSE3", 1, 0, CpuFeature::kEcx, 9},
#endif
#ifdef __SSE3__
    {"SSE3", 1, 0, CpuFeature::kEcx, 0},
#endif
    // At least one; every 64-bit processor has it.
    {"SSE2", 1, 0, CpuFeature::kEdx, 26},
};

constinit const std::size_t kNeededFeatureCount = sizeof kNeededFeatures / sizeof *kNeededFeatures;

}  // namespace moeloom
