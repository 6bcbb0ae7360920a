#include "measure/sweep/points.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::size_t points_in(const std::vector<EpGroup>& groups) {
  std::size_t count = 0;
  for (const EpGroup& group : groups) count += group.size();
  return count;
}

TEST(SweepPoints, DefaultsSweepEveryDivisorOfTheRanks) {
  const std::vector<EpGroup> groups = groups_of({}, 8, 6);
  ASSERT_EQ(groups.size(), 4u) << "a layer and a step, strong and weak";
  std::set<Index> eps;
  for (const EpPoint& point : groups.front()) eps.insert(point.ep);
  EXPECT_EQ(eps, (std::set<Index>{1, 2, 3, 6}));
  EXPECT_EQ(points_in(groups), 4u * 4 * 3);
  EXPECT_EQ(points_in(groups_of({}, 4, 8)), 4u * 3 * 3) << "ep = 8 would leave ranks without experts";
}

TEST(SweepPoints, EveryListMultiplies) {
  SweepSettings settings;
  settings.modes = {BenchMode::kLayer};
  settings.scalings = {Scaling::kWeak};
  settings.eps = {1, 2};
  settings.gmm = {GmmRequest::kNever, GmmRequest::kForce};
  settings.dispatchers = {DispatcherKind::kAlltoall, DispatcherKind::kShared};
  settings.workloads.assign(kWorkloads.begin(), kWorkloads.end());
  settings.tokens_per_rank = 10;
  const std::vector<EpGroup> groups = groups_of(settings, 8, 4);
  EXPECT_EQ(groups.size(), kWorkloads.size());
  EXPECT_EQ(points_in(groups), kWorkloads.size() * 2 * 2 * 2);
  std::set<std::string> texts;
  for (const EpGroup& group : groups)
    for (const EpPoint& point : group) {
      texts.insert(text_of(point));
      EXPECT_EQ(point.tokens, 40);
    }
  EXPECT_EQ(texts.size(), points_in(groups));
}

TEST(SweepPoints, ALoopOverExpertsHasNoPointInBf16) {
  SweepSettings settings;
  settings.modes = {BenchMode::kLayer};
  settings.scalings = {Scaling::kStrong};
  settings.dtypes = {DType::kF32, DType::kBF16};
  EXPECT_EQ(points_in(groups_of(settings, 8, 1)), 5u);
}

TEST(SweepPoints, SettingsTellApartWhatIsNotInAPoint) {
  const ModelConfig config;
  ModelConfig wider;
  wider.hidden_size = 512;
  const auto with = [&](auto change) {
    SweepSettings settings;
    change(settings);
    return settings_text(settings, config, {}, "cpu");
  };
  const std::string base = with([](SweepSettings&) {});
  EXPECT_EQ(with([](SweepSettings& s) { s.eps = {1}; }), base);
  const std::set<std::string> different = {base,
                                           with([](SweepSettings& s) { s.samples = 5; }),
                                           with([](SweepSettings& s) { s.warmup = 5; }),
                                           with([](SweepSettings& s) { s.rebalance = true; }),
                                           with([](SweepSettings& s) { s.seed = 5; }),
                                           with([](SweepSettings& s) { s.sequence_length = 5; }),
                                           with([](SweepSettings& s) { s.commit = "abc"; }),
                                           settings_text({}, config, {"MOELOOM_FUSED_OPS=0"}, "cpu"),
                                           settings_text({}, config, {}, "another cpu"),
                                           settings_text({}, wider, {}, "cpu")};
  EXPECT_EQ(different.size(), 10u);
}

}  // namespace
}  // namespace moeloom
