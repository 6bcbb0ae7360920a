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

/// Seconds that one layer's expert products take a step, predicted from rates measured on this machine.
struct GmmPrediction {
  double loop_seconds = 0;
  double gmm_seconds = 0;
};

struct GmmFacts {
  std::optional<Index> ep_size;  // none: no mesh is known
  Index resident_bytes = 0;      // this rank's expert weights of one layer, fp32
  Index packed_bytes = 0;        // both packed faces of them
  Index budget_bytes = 0;        // of one layer: upstream's "small"; auto: the most for packed_bytes
  bool contiguous = true;        // each weight unit-stride in the layout the product reads
  double rows_per_expert = 0;    // expected, per micro-batch
  double uses_per_packing = 1;   // micro-batches that share one packing
  std::optional<GmmPrediction> prediction;  // needed by kAuto only
};

struct GmmDecision {
  bool apply = false;
  std::string reason;
};

/// Whether a rank may hold the packed faces; if not, auto takes the loop and needs no prediction.
inline bool packed_faces_fit(const GmmFacts& facts) {
  return facts.packed_bytes <= facts.budget_bytes;
}

/// Pure. 0: never. 1: only if a mesh is known and ep > 1, and the weights are contiguous and within the
/// budget. auto: the path predicted faster, the reason carrying both predictions; the loop if packed faces
/// exceed the budget. force: always. Throws ConfigError for kAuto without a prediction.
GmmDecision decide_gmm(GmmRequest request, const GmmFacts& facts);

}  // namespace moeloom
