#include "open/settled_options.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

RunInputs of_width(Index hidden_size) {
  RunInputs inputs;
  inputs.config.hidden_size = hidden_size;
  return inputs;
}

TEST(SettleRate, MakesNumbersOfWhatWasNotSaidAndSaysWhy) {
  struct Case {
    Index hidden_size;
    double rate;
    const char* reason;
  };
  const Case cases[] = {{64, 1e-3, "auto: 0.001 up to hidden_size 256"},
                        {256, 1e-3, "auto: 0.001 up to hidden_size 256"},
                        {2048, 1.25e-4, "auto: 0.001 x 256 / hidden_size 2048"}};
  for (const auto& [hidden_size, rate, reason] : cases) {
    TrainOptions asked;
    asked.run.steps = 5;
    EXPECT_EQ(why_rate(asked, of_width(hidden_size)), reason);
    const TrainOptions options = settled(asked, of_width(hidden_size), 5);
    EXPECT_EQ(options.optimizer.learning_rate, rate);
    EXPECT_EQ(options.optimizer.warmup, 10);
    EXPECT_EQ(why_rate(options, of_width(7)), "") << "it is settled";
    EXPECT_EQ(settled(options, of_width(7), 5).optimizer.learning_rate, rate);
  }
}

TEST(SettleRate, LeavesWhatWasSaidAlone) {
  TrainOptions asked;
  asked.optimizer.learning_rate = 0.003;
  EXPECT_EQ(why_rate(asked, of_width(2048)), "");
  const OptimizerOptions rate = settled(asked, of_width(2048), 500).optimizer;
  EXPECT_EQ(rate.learning_rate, 0.003);
  EXPECT_FALSE(rate.warmup) << "train.conf says auto, as ever";
  TrainOptions warmup;
  warmup.optimizer.warmup = 3;
  EXPECT_NE(why_rate(warmup, of_width(2048)), "");
  EXPECT_EQ(settled(warmup, of_width(2048), 500).optimizer.warmup, 3);
}

TEST(SettleRate, OfAResumedRunIsTheRatesThatItHad) {
  RunInputs inputs = of_width(2048);
  inputs.recorded.emplace();
  inputs.recorded->settings.set("lr", 0.02);
  inputs.recorded->settings.set("warmup", 7);
  EXPECT_EQ(why_rate({}, inputs), "auto: as the resumed run has it");
  const OptimizerOptions rate = settled({}, inputs, 500).optimizer;
  EXPECT_EQ(rate.learning_rate, 0.02);
  EXPECT_EQ(rate.warmup, 7);
  inputs.recorded->settings = Document();  // of an older program
  EXPECT_EQ(why_rate({}, inputs), "auto: 0.001 x 256 / hidden_size 2048");
}

}  // namespace
}  // namespace moeloom
