#include "moeloom/kernels/gmm_policy.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kMiB = Index{1} << 20;

GmmFacts sharded() {
  GmmFacts facts;
  facts.ep_size = 4;
  facts.resident_bytes = 12 * kMiB;
  facts.budget_bytes = 256 * kMiB;
  facts.rows_per_expert = 64;
  facts.prediction = GmmPrediction{.loop_seconds = 6e-3, .gmm_seconds = 4.1e-3, .packed_seconds = 5e-3};
  return facts;
}

GmmFacts with(void (*change)(GmmFacts&)) {
  GmmFacts facts = sharded();
  change(facts);
  return facts;
}

struct Case {
  const char* name;
  GmmRequest request;
  GmmFacts facts;
  bool apply;
  const char* reason;
  bool packs = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"never", GmmRequest::kNever, sharded(), false, "GMM request 0: the experts run as the native loop"},
      {"force", GmmRequest::kForce, with([](GmmFacts& f) { f.ep_size.reset(); }), true,
       "GMM request force: the experts run grouped, whatever the facts"},
      {"upstream without a mesh", GmmRequest::kUpstreamRule, with([](GmmFacts& f) { f.ep_size.reset(); }),
       false, "no mesh is known, so nothing says that the resident weights are sharded (upstream rule)"},
      {"upstream, this rank holds every expert", GmmRequest::kUpstreamRule,
       with([](GmmFacts& f) { f.ep_size = 1; }), false,
       "ep = 1: this rank holds every expert, so the resident weights are neither small nor sharded "
       "(upstream "
       "rule)"},
      {"upstream, not contiguous", GmmRequest::kUpstreamRule, with([](GmmFacts& f) { f.contiguous = false; }),
       false,
       "ep = 4, but the resident expert weights are not contiguous and each call would copy them (upstream "
       "rule)"},
      {"upstream, one byte over the budget", GmmRequest::kUpstreamRule,
       with([](GmmFacts& f) { f.budget_bytes = f.resident_bytes - 1; }), false,
       "ep = 4, but the resident expert weights 12582912 bytes exceed the budget 12582911 bytes (upstream "
       "rule)"},
      {"upstream, one byte within the budget", GmmRequest::kUpstreamRule,
       with([](GmmFacts& f) { f.budget_bytes = f.resident_bytes + 1; }), true,
       "ep = 4: the resident expert weights 12582912 bytes are sharded, contiguous and within the budget "
       "12582913 bytes (upstream rule)"},
      {"upstream, far over the budget", GmmRequest::kUpstreamRule,
       with([](GmmFacts& f) { f.resident_bytes = 1229 * kMiB; }), false,
       "ep = 4, but the resident expert weights 1.2 GiB exceed the budget 256 MiB (upstream rule)"},
      {"upstream, exactly the budget", GmmRequest::kUpstreamRule,
       with([](GmmFacts& f) { f.budget_bytes = f.resident_bytes; }), true,
       "ep = 4: the resident expert weights 12 MiB are sharded, contiguous and within the budget 12 MiB "
       "(upstream rule)"},
      {"auto, grouped is faster", GmmRequest::kAuto, sharded(), true,
       "predicted 4.1 ms grouped on the masters against 6 ms for the loop, at 64 rows per expert"},
      {"auto, the loop is faster", GmmRequest::kAuto, with([](GmmFacts& f) {
         f.prediction = GmmPrediction{.loop_seconds = 2.5e-4, .gmm_seconds = 2e-2, .packed_seconds = 1.5e-2};
         f.rows_per_expert = 0.5;
         f.uses_per_packing = 4;
       }),
       false,
       "predicted 15 ms grouped on packed weights (20 ms on the masters) against 0.25 ms for the loop, at "
       "0.5 rows "
       "per expert and 4 uses per packing",
       true},
      {"auto, equal", GmmRequest::kAuto, with([](GmmFacts& f) {
         f.prediction = GmmPrediction{.loop_seconds = 1, .gmm_seconds = 1, .packed_seconds = 1};
       }),
       false,
       "predicted 1e+03 ms grouped on the masters against 1e+03 ms for the loop, at 64 rows per expert"},
      {"auto does not ask for a mesh", GmmRequest::kAuto, with([](GmmFacts& f) {
         f.ep_size = 1;
         f.budget_bytes = 0;
         f.contiguous = false;
       }),
       true, "predicted 4.1 ms grouped on the masters against 6 ms for the loop, at 64 rows per expert"},
      {"auto, packed faces of exactly the budget", GmmRequest::kAuto, with([](GmmFacts& f) {
         f.packed_bytes = f.budget_bytes = 24 * kMiB;
         f.uses_per_packing = 8;
         f.prediction->packed_seconds = 3e-3;
       }),
       true,
       "predicted 3 ms grouped on packed weights (4.1 ms on the masters) against 6 ms for the loop, at 64 "
       "rows per "
       "expert and 8 uses per packing",
       true},
      {"auto, packed faces over the budget", GmmRequest::kAuto, with([](GmmFacts& f) {
         f.packed_bytes = 24 * kMiB;
         f.budget_bytes = 16 * kMiB;
         f.prediction->packed_seconds = 3e-3;
       }),
       true,
       "predicted 4.1 ms grouped on the masters (packed faces would take 24 MiB a layer, over --gmm-budget "
       "16 MiB) "
       "against 6 ms for the loop, at 64 rows per expert"},
      {"auto, packed faces that a node pool could not reach", GmmRequest::kAuto, with([](GmmFacts& f) {
         f.may_pack = false;
         f.prediction->packed_seconds = 3e-3;
       }),
       true,
       "predicted 4.1 ms grouped on the masters (packed faces would be out of the node's other ranks' reach) "
       "against 6 ms for the loop, at 64 rows per expert"},
      {"force, many uses that a node pool could not share", GmmRequest::kForce, with([](GmmFacts& f) {
         f.prediction.reset();
         f.may_pack = false;
         f.uses_per_packing = 8;
       }),
       true, "GMM request force: the experts run grouped, whatever the facts"},
      {"force, few uses", GmmRequest::kForce, with([](GmmFacts& f) {
         f.prediction.reset();
         f.uses_per_packing = 3;
       }),
       true, "GMM request force: the experts run grouped, whatever the facts"},
      {"force, many uses", GmmRequest::kForce, with([](GmmFacts& f) {
         f.prediction.reset();
         f.uses_per_packing = 4;
       }),
       true, "GMM request force: the experts run grouped, whatever the facts", true},
      {"force, many uses, over the budget", GmmRequest::kForce, with([](GmmFacts& f) {
         f.prediction.reset();
         f.uses_per_packing = 4;
         f.packed_bytes = f.budget_bytes + 1;
       }),
       true, "GMM request force: the experts run grouped, whatever the facts"},
  };
  return all;
}

TEST(GmmPolicy, DecidesByTheTable) {
  for (const Case& c : cases()) {
    const GmmDecision decision = decide_gmm(c.request, c.facts);
    EXPECT_EQ(decision.apply, c.apply) << c.name;
    EXPECT_EQ(decision.reason, c.reason) << c.name;
    EXPECT_EQ(decision.packs, c.packs) << c.name;
  }
}

TEST(GmmPolicy, NeedsAPredictionForAutoOnly) {
  const GmmFacts facts = with([](GmmFacts& f) { f.prediction.reset(); });
  EXPECT_THROW(decide_gmm(GmmRequest::kAuto, facts), ConfigError);
  for (const GmmRequest request : {GmmRequest::kNever, GmmRequest::kUpstreamRule, GmmRequest::kForce}) {
    EXPECT_NO_THROW(decide_gmm(request, facts));
  }
}

TEST(GmmRequestText, IsTrimmedInAnyCaseAndReadsBackItsName) {
  for (const GmmRequest request :
       {GmmRequest::kNever, GmmRequest::kUpstreamRule, GmmRequest::kAuto, GmmRequest::kForce}) {
    EXPECT_EQ(gmm_request_from_text(name_of(request)), request);
    EXPECT_NE(kGmmRequestTexts.find(name_of(request)), std::string_view::npos);
  }
  EXPECT_EQ(gmm_request_from_text("  AUTO\n"), GmmRequest::kAuto);
  EXPECT_EQ(gmm_request_from_text("\tForce "), GmmRequest::kForce);
}

TEST(GmmRequestText, IsNoneForAnythingElse) {
  for (const char* text : {"", "  ", "2", "yes", "on", "true", "au to", "0,1", "01", "auto."}) {
    EXPECT_EQ(gmm_request_from_text(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace moeloom
