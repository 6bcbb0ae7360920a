// What options.hpp makes of options once they are read; how they are read is in the tests of each command.
#include "cli/options.hpp"

#include "moeloom/job/mesh_shape.hpp"
#include "moeloom/model/hf/config.hpp"

#include "cli/flag_names.hpp"
#include "fields/train_fields.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Options, TheMeshFillsInWhatTheRanksLeaveOpen) {
  const MeshShape shape = mesh_shape({.ep = 4}, 8);
  EXPECT_EQ(shape.dp, 2);
  EXPECT_EQ(shape.ep, 4);
  const MeshShape strided = mesh_shape({.dp = 3, .ep = 2, .order = {"ep", "dp"}}, 6);
  EXPECT_EQ(strided.dp, 3);
  EXPECT_EQ(strided.order, (std::vector<std::string>{"ep", "dp"}));
}

TEST(Options, TheScheduleFillsInWhatIsLeftOpen) {
  constexpr Index kWidth = 2048;
  TrainOptions options;
  options.run.steps = 50;
  EXPECT_EQ(schedule(options, kWidth).total_steps, 50);
  EXPECT_EQ(schedule(options, kWidth).warmup_steps, 10);
  EXPECT_EQ(schedule(options, kWidth).peak, 1.25e-4);
  options.optimizer.learning_rate = 0.003;
  EXPECT_EQ(schedule(options, kWidth).warmup_steps, 5);
  EXPECT_EQ(schedule(options, kWidth).peak, 0.003) << "a rate that was said is left alone";
  options.run.steps = 100000;
  EXPECT_EQ(schedule(options, kWidth).warmup_steps, 100);
  for (const bool said : {true, false}) {
    if (!said) options.optimizer.learning_rate.reset();
    options.optimizer.warmup = 0;
    options.optimizer.schedule_steps = 70;
    EXPECT_EQ(schedule(options, kWidth).warmup_steps, 0);
    EXPECT_EQ(schedule(options, kWidth).total_steps, 70);
  }
}

ModelConfig of_type(const std::string& type, Index experts) {
  ModelConfig config;
  config.model_type = type;
  config.num_experts = experts;
  return config;
}

TEST(Options, RouterLossesNeedARouterThatHasThem) {
  TrainOptions options;
  options.router.aux_loss_coef = 0.5;
  options.router.z_loss_coef = 0.25;
  EXPECT_TRUE(router_loss_violations(options, of_type("qwen3_moe", 8)).empty());
  const auto sigmoid = router_loss_violations(options, of_type("deepseek_v3", 8));
  ASSERT_EQ(sigmoid.size(), 1u);
  EXPECT_NE(
      with_flag_names(sigmoid[0]).find("--z-loss-coef 0.25 has nothing to weigh: the router of deepseek_v3"),
      std::string::npos);
  const auto dense = router_loss_violations(options, of_type("qwen3", 0));
  ASSERT_EQ(dense.size(), 2u);
  EXPECT_NE(dense[0].find("no layer of this model has experts"), std::string::npos);
}

TEST(Options, RouterLossesOfNothingAreNoMistake) {
  TrainOptions options;
  EXPECT_TRUE(router_loss_violations(options, of_type("qwen3", 0)).empty());
  options.router.aux_loss_coef = 0;
  EXPECT_TRUE(router_loss_violations(options, of_type("qwen3", 0)).empty());
}

TEST(Options, InspectTakesAFolderAMeshAndWhatIsFrozen) {
  const char* const words[] = {"inspect", "DIR", "--ranks", "8", "--ep", "4", "--freeze", "*.norm,a?"};
  const InspectOptions options = parse_inspect_options(static_cast<int>(std::size(words)), words);
  EXPECT_EQ(options.model, "DIR");
  EXPECT_EQ(options.ranks, 8);
  EXPECT_EQ(options.ep, 4);
  EXPECT_EQ(options.freeze, (NamePatterns{"*.norm", "a?"}));
}

}  // namespace
}  // namespace moeloom
