#include "moeloom/kernels/gmm_policy.hpp"

#include <vector>

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
  return facts;
}

GmmFacts with(void (*change)(GmmFacts&)) {
  GmmFacts facts = sharded();
  change(facts);
  return facts;
}

/// As train's: packed faces take twice what the masters do.
GmmFacts facts_of(bool contiguous, double uses, bool on_disk, bool within_budget) {
  GmmFacts facts = sharded();
  facts.contiguous = contiguous;
  facts.uses_per_packing = uses;
  facts.on_disk = on_disk;
  facts.packed_bytes = 24 * kMiB;
  facts.budget_bytes = within_budget ? facts.packed_bytes : facts.packed_bytes - 1;
  return facts;
}

/// Of the table's shape "default".
GmmFacts small_calls() {
  GmmFacts facts = facts_of(true, 8, false, true);
  facts.expert_bytes = Index{768} << 10;
  facts.rows_per_expert = 1;
  facts.avx512 = true;
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
      {"auto, one use", GmmRequest::kAuto, facts_of(true, 1, false, true), true,
       "a rank's expert weights (12 MiB a layer) are contiguous; grouped products read the masters, because "
       "packing pays from 4 micro-batches a step on and there is 1"},
      {"auto, few uses, whatever else", GmmRequest::kAuto, facts_of(true, 3, true, false), true,
       "a rank's expert weights (12 MiB a layer) are contiguous; grouped products read the masters, because "
       "packing pays from 4 micro-batches a step on and there are 3"},
      {"auto, many uses", GmmRequest::kAuto, facts_of(true, 8, false, true), true,
       "a rank's expert weights (12 MiB a layer) are contiguous; grouped products read packed copies "
       "(24 MiB, within the budget 24 MiB), because 8 micro-batches a step use them and 4 pay for packing",
       true},
      {"auto, many uses, one byte over the budget", GmmRequest::kAuto, facts_of(true, 8, false, false), true,
       "a rank's expert weights (12 MiB a layer) are contiguous; grouped products read the masters, because "
       "packed copies would take 25165824 bytes, over the budget 25165823 bytes"},
      {"auto, not contiguous", GmmRequest::kAuto, facts_of(false, 1, false, true), false,
       "a rank's expert weights (12 MiB a layer) are not contiguous, so every grouped product would copy "
       "them; packed copies, which would be contiguous, are not made, because packing pays from 4 "
       "micro-batches a step on and there is 1"},
      {"auto, not contiguous, many uses", GmmRequest::kAuto, facts_of(false, 4, false, true), true,
       "a rank's expert weights (12 MiB a layer) are not contiguous, but packed copies are; grouped products "
       "read packed copies (24 MiB, within the budget 24 MiB), because 4 micro-batches a step use them and 4 "
       "pay for packing",
       true},
      {"auto, AVX-512 and a row an expert", GmmRequest::kAuto, small_calls(), false,
       "a call has about one row an expert (1), an expert is small (768 KiB) and the CPU has AVX-512, with "
       "which the loop is faster there",
       true},
      {"force, many uses of what lies on a disk", GmmRequest::kForce, with([](GmmFacts& f) {
         f.on_disk = true;
         f.uses_per_packing = 8;
       }),
       true, "GMM request force: the experts run grouped, whatever the facts"},
      {"force, few uses", GmmRequest::kForce, with([](GmmFacts& f) { f.uses_per_packing = 3; }), true,
       "GMM request force: the experts run grouped, whatever the facts"},
      {"force, many uses", GmmRequest::kForce, with([](GmmFacts& f) { f.uses_per_packing = 4; }), true,
       "GMM request force: the experts run grouped, whatever the facts", true},
      {"force, many uses, over the budget", GmmRequest::kForce, with([](GmmFacts& f) {
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

TEST(GmmPolicy, AutoRunsGroupedWhereWhatItReadsIsContiguous) {
  for (const bool contiguous : {true, false})
    for (const double uses : {0.0, 1.0, 3.0, 3.5, 4.0, 5.0, 64.0})
      for (const bool on_disk : {true, false})
        for (const bool within_budget : {true, false}) {
          const GmmFacts facts = facts_of(contiguous, uses, on_disk, within_budget);
          const GmmDecision decision = decide_gmm(GmmRequest::kAuto, facts);
          EXPECT_EQ(decision.packs, uses >= 4 && !on_disk && within_budget) << decision.reason;
          EXPECT_EQ(decision.apply, contiguous || decision.packs) << decision.reason;
        }
}

/// The points of bench/results/2026-11-22-gmm-policy-avx512.txt on both sides of the bounds.
TEST(GmmPolicy, AutoTakesTheLoopForARowAnExpertOfSmallOnesWithAvx512Alone) {
  struct Point {
    const char* name;
    Index hidden, inter;
    double rows;
    bool avx512, loop_may_run, apply;
  };
  for (const Point& p :
       {Point{"small, a row", 256, 256, 1, true, true, false},
        Point{"small, half a row", 256, 256, 0.5, true, true, false},
        Point{"small, no row", 256, 256, 0, true, true, false},
        Point{"small, about a row", 256, 256, 1.5, true, true, false},
        Point{"small, two rows", 256, 256, 2, true, true, true},
        Point{"small, 8 rows", 256, 256, 8, true, true, true}, Point{"AVX2", 256, 256, 1, false, true, true},
        Point{"bf16 or exact sums", 256, 256, 1, true, false, true},
        Point{"layer", 1024, 768, 1, true, true, true}, Point{"qwen3-30b", 2048, 768, 1, true, true, true},
        Point{"mixtral", 4096, 14336, 1, true, true, true}}) {
    GmmFacts facts = sharded();
    facts.expert_bytes = 12 * p.hidden * p.inter;
    facts.rows_per_expert = p.rows;
    facts.avx512 = p.avx512;
    facts.loop_may_run = p.loop_may_run;
    EXPECT_EQ(decide_gmm(GmmRequest::kAuto, facts).apply, p.apply) << p.name;
    EXPECT_TRUE(decide_gmm(GmmRequest::kForce, facts).apply) << p.name;
    EXPECT_FALSE(decide_gmm(GmmRequest::kNever, facts).apply) << p.name;
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
  for (const char* text : {"", "  ", "2", "yes", "on", "true", "au to", "0,1", "01", "auto.", "measured"}) {
    EXPECT_EQ(gmm_request_from_text(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace moeloom
