// Whether the experts' matmuls run grouped (GMM patch) or as the native loop, and why.
#pragma once

#include "moeloom/base/index.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace moeloom {

/// 0, 1, auto, force. Upstream's own switch has the first two, and unset means 0 there.
enum class GmmRequest { kNever, kUpstreamRule, kAuto, kForce };
/// As it is written: "0", "1", "auto", "force".
std::string_view name_of(GmmRequest request);
/// Trimmed, in any case; none if it is not one of kGmmRequestTexts.
std::optional<GmmRequest> gmm_request_from_text(std::string_view text);
inline constexpr std::string_view kGmmRequestTexts = "0, 1, auto, force";

struct GmmFacts {
  std::optional<Index> ep_size;  // none: no mesh is known
  Index resident_bytes = 0;      // this rank's expert weights of one layer, fp32
  Index packed_bytes = 0;        // both packed faces of them
  Index budget_bytes = 0;        // of one layer: upstream's "small"; else the most for packed_bytes
  bool contiguous = true;        // each weight unit-stride in the layout the product reads
  Index expert_bytes = 0;        // one expert's weights of a layer, fp32
  double rows_per_expert = 0;    // of a call, expected from the batch's shape: the same on every rank
  bool avx512 = false;           // every rank's CPU has it
  bool loop_may_run = true;      // false: bf16 products, or bits that may not depend on the rows of a call
  double uses_per_packing = 1;   // micro-batches that share one packing
  bool on_disk = false;          // the masters are, and packed faces would bring them back into memory
};

struct GmmDecision {
  bool apply = false;
  std::string reason;
  /// Whether grouped products read packed faces, made once a weight version, or the masters. The bits are the
  /// same.
  bool packs = false;
};

/// Whether this CPU has AVX-512.
bool cpu_has_avx512();

/// Micro-batches a step from which packed faces are taken for the faster: packing moves three times a
/// weight's bytes, a product on the masters reads them once and transposes on the way.
inline constexpr double kUsesThatPayPacking = 4;

// With AVX-512 the loop took 0.49 to 0.62 of GMM's time at 1 row an expert of 768 KiB, which stays in the
// cache, and more than GMM at 8 rows, and at 1 row of experts of 9 MiB and more; between these nothing was
// measured. On AVX2 it never won. (bench/results/2026-11-22-gmm-policy-avx512.txt, -avx2.txt)
inline constexpr double kMostRowsOfTheLoop = 1.5;
inline constexpr Index kMostExpertBytesOfTheLoop = Index{1} << 20;

/// Pure. 0: never. 1: only if a mesh is known and ep > 1, and the weights are contiguous and within the
/// budget. auto: by rule, so that the same facts always give the same bits: the loop for about one row an
/// expert of small weights with AVX-512, else grouped where what it reads is contiguous, the masters or
/// packed faces. force: always. Faces are packed only within the budget and from kUsesThatPayPacking uses on.
GmmDecision decide_gmm(GmmRequest request, const GmmFacts& facts);

}  // namespace moeloom
