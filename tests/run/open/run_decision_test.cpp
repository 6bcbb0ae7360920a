#include "open/run_decision.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

RunFlags flags_with(std::optional<GmmRequest> gmm) {
  RunFlags flags;
  flags.gmm = gmm;
  if (gmm) flags.why_gmm = "GMM_PATCH=" + std::string(name_of(*gmm));
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

TEST(GmmRequestOfARun, PatchOffLeavesNoKernel) {
  RunFlags flags;
  flags.patch = false;
  flags.why_patch = "PATCH=0";
  EXPECT_EQ(run_request({.kernels = "fused_moe"}, {}, flags).kernels, "none");
  EXPECT_EQ(gmm_request({}, flags).reason, "PATCH=0 switches every kernel off");
  EXPECT_EQ(run_request({.kernels = "fused_moe"}, {}, {}).kernels, "fused_moe");
}

}  // namespace
}  // namespace moeloom
