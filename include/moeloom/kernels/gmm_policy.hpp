// Whether the experts' matmuls run grouped (GMM patch) or as the native loop, and why.
#pragma once

#include "moeloom/base/index.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace moeloom {

/// 0, 1, auto, measure, force. Upstream's own switch has the first two, and unset means 0 there.
enum class GmmRequest { kNever, kUpstreamRule, kAuto, kMeasure, kForce };
/// As it is written: "0", "1", "auto", "measure", "force".
std::string_view name_of(GmmRequest request);
/// Trimmed, in any case; none if it is not one of kGmmRequestTexts.
std::optional<GmmRequest> gmm_request_from_text(std::string_view text);
inline constexpr std::string_view kGmmRequestTexts = "0, 1, auto, measure, force";

/// Seconds that one layer's expert products take a step, predicted from rates measured on this machine.
struct GmmPrediction {
  double loop_seconds = 0;
  double gmm_seconds = 0;     // grouped, reading the masters
  double packed_seconds = 0;  // grouped, reading packed faces: with its share of the packing
};

struct GmmFacts {
  std::optional<Index> ep_size;  // none: no mesh is known
  Index resident_bytes = 0;      // this rank's expert weights of one layer, fp32
  Index packed_bytes = 0;        // both packed faces of them
  Index budget_bytes = 0;        // of one layer: upstream's "small"; else the most for packed_bytes
  bool contiguous = true;        // each weight unit-stride in the layout the product reads
  double rows_per_expert = 0;    // expected, per micro-batch
  double uses_per_packing = 1;   // micro-batches that share one packing
  bool may_pack = true;          // false: ranks that read each other's masters could not reach packed faces
  bool on_disk = false;          // the masters are, and packed faces would bring them back into memory
  std::optional<GmmPrediction> prediction;  // needed by kMeasure, which alone looks at it
};

struct GmmDecision {
  bool apply = false;
  std::string reason;
  /// Whether grouped products read packed faces, made once a weight version, or the masters. The bits are the
  /// same.
  bool packs = false;
};

/// Micro-batches a step from which packed faces are taken for the faster where nothing is measured: packing
/// moves three times a weight's bytes, a product on the masters reads them once and transposes on the way.
inline constexpr double kUsesThatPayPacking = 4;

/// Pure. 0: never. 1: only if a mesh is known and ep > 1, and the weights are contiguous and within the
/// budget. auto: by rule, so that the same facts always give the same bits: grouped where what it reads is
/// contiguous, the masters or packed faces. measure: the path predicted fastest, the reason carrying the
/// predictions. force: always. Faces are packed only within the budget, from kUsesThatPayPacking uses on, or
/// under measure where they are predicted to pay. Throws ConfigError for kMeasure without a prediction.
GmmDecision decide_gmm(GmmRequest request, const GmmFacts& facts);

}  // namespace moeloom
