#include "run/start/run_decision.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

EnvironmentFlags flags_with(std::optional<GmmRequest> gmm) {
  EnvironmentFlags flags;
  flags.gmm = gmm;
  if (gmm) flags.given = {"MOELOOM_GMM_PATCH=" + std::string(name_of(*gmm))};
  return flags;
}

TEST(GmmRequestOfARun, IsTheFlagsOrWhatTheOptionsAskForWhereNoneIsSet) {
  struct Case {
    const char* name;
    KernelOptions choice;
    std::optional<GmmRequest> flag;
    GmmRequest request;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {"nothing", {}, std::nullopt, GmmRequest::kAuto, "no flag is set"},
      {"calibrate", {.calibrate = true}, std::nullopt, GmmRequest::kMeasure, "--calibrate asks for it"},
      {"measure", {}, GmmRequest::kMeasure, GmmRequest::kMeasure, "MOELOOM_GMM_PATCH=measure"},
      {"both", {.calibrate = true}, GmmRequest::kMeasure, GmmRequest::kMeasure, "MOELOOM_GMM_PATCH=measure"},
      {"both, whatever unset means",
       {.gmm_rule = GmmRule::kUpstream, .calibrate = true},
       GmmRequest::kMeasure,
       GmmRequest::kMeasure,
       "MOELOOM_GMM_PATCH=measure"},
      {"named", {.kernels = "fused_rope,fused_moe"}, std::nullopt, GmmRequest::kForce, "names fused_moe"},
      {"named, and a flag", {.kernels = "fused_moe"}, GmmRequest::kAuto, GmmRequest::kAuto, "GMM_PATCH=auto"},
      {"another is named", {.kernels = "fused_rope"}, std::nullopt, GmmRequest::kAuto, "no flag is set"},
      {"upstream", {.gmm_rule = GmmRule::kUpstream}, std::nullopt, GmmRequest::kNever, "unset means off"}};
  for (const Case& c : cases) {
    const AskedGmm choice = gmm_request(c.choice, flags_with(c.flag));
    EXPECT_EQ(choice.request, c.request) << c.name;
    EXPECT_NE(choice.reason.find(c.reason), std::string::npos) << c.name << ": " << choice.reason;
  }
}

TEST(GmmRequestOfARun, CalibrateIsNeverIgnored) {
  struct Case {
    const char* name;
    KernelOptions choice;
    std::optional<GmmRequest> flag;
    const char* found;
  };
  const std::vector<Case> cases = {
      {"never", {.calibrate = true}, GmmRequest::kNever, "the request is 0 (MOELOOM_GMM_PATCH=0)"},
      {"upstream's rule", {.calibrate = true}, GmmRequest::kUpstreamRule, "is 1 (MOELOOM_GMM_PATCH=1)"},
      {"auto", {.calibrate = true}, GmmRequest::kAuto, "is auto (MOELOOM_GMM_PATCH=auto)"},
      {"force", {.calibrate = true}, GmmRequest::kForce, "is force (MOELOOM_GMM_PATCH=force)"},
      {"named", {.kernels = "fused_moe", .calibrate = true}, std::nullopt, "is force (--kernels names"},
      {"unset is skip", {.gmm_rule = GmmRule::kUpstream, .calibrate = true}, std::nullopt, "is 0 (neither"}};
  for (const Case& c : cases) {
    try {
      gmm_request(c.choice, flags_with(c.flag));
      FAIL() << c.name;
    } catch (const ConfigError& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(c.found), std::string::npos) << c.name << ": " << said;
      EXPECT_NE(said.find("set MOELOOM_GMM_PATCH=measure, or choose --calibrate no"), std::string::npos)
          << said;
    }
  }
}

}  // namespace
}  // namespace moeloom
