// Whether the experts' products run as grouped matmul (GMM) or as a loop over experts on OpenBLAS, and why.
//
// Upstream is Twinkle (modelscope) and LLaMA-Factory, whose switch for NPUs has the values 0 and 1. No
// function here is collective; equal facts give equal decisions, so ranks that must agree are given the same.
#pragma once

#include "moeloom/base/index.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace moeloom {

/// 0, 1, auto, force: what decide_gmm() makes of each. Upstream's switch, unset, means 0.
enum class GmmRequest { kNever, kUpstreamRule, kAuto, kForce };
/// As it is written: "0", "1", "auto", "force".
std::string_view name_of(GmmRequest request);
/// The inverse, with spaces around it and in any case; none if it is not one of kGmmRequestTexts.
std::optional<GmmRequest> gmm_request_from_text(std::string_view text);
inline constexpr std::string_view kGmmRequestTexts = "0, 1, auto, force";

/// What the decision is made from. Bytes are of one rank and one layer.
struct GmmFacts {
  std::optional<Index> ep_size;  // none: no mesh is known
  Index resident_bytes = 0;      // this rank's expert weights of one layer, fp32
  Index packed_bytes = 0;        // both packed faces of them
  Index budget_bytes = 0;        // most resident_bytes of kUpstreamRule, most packed_bytes of the others
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
  std::string reason;  // a sentence for people, also where it does not apply
  /// Whether grouped products read packed faces, made once for each change of the weights, or the masters
  /// (grouped_matmul.hpp). The bits are the same.
  bool packs = false;
};

/// Whether this CPU has AVX-512.
bool cpu_has_avx512();

/// Micro-batches a step from which packed faces are taken to be faster: packing moves three times a weight's
/// bytes, a product on the masters reads them once and transposes on the way.
inline constexpr double kUsesThatPayPacking = 4;

// With AVX-512 the loop took 0.49 to 0.62 of GMM's time at 1 row an expert of 768 KiB, which stays in the
// cache, and more than GMM at 8 rows, and at 1 row of experts of 9 MiB and more; between these nothing was
// measured. On AVX2 it never won. (The repository's bench/results/2026-11-22-gmm-policy-avx512.txt,
// -avx2.txt)
inline constexpr double kMostRowsOfTheLoop = 1.5;
inline constexpr Index kMostExpertBytesOfTheLoop = Index{1} << 20;

/// Pure. kNever: never. kUpstreamRule: only if a mesh is known and ep > 1, and the weights are contiguous and
/// within the budget. kAuto: by rule, so that the same facts always give the same bits: the loop for at most
/// kMostRowsOfTheLoop rows an expert of at most kMostExpertBytesOfTheLoop with AVX-512, else grouped where
/// what it reads, masters or packed faces, is contiguous. kForce: always. Faces are packed only within the
/// budget and from kUsesThatPayPacking uses on.
GmmDecision decide_gmm(GmmRequest request, const GmmFacts& facts);

}  // namespace moeloom
