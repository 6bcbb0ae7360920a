#include "run/start/run_setup.hpp"

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
    TrainOptions options;
    options.run.steps = 5;
    EXPECT_EQ(settle_rate(options, of_width(hidden_size)), reason);
    EXPECT_EQ(options.optimizer.learning_rate, rate);
    EXPECT_EQ(options.optimizer.warmup, 10);
    EXPECT_EQ(settle_rate(options, of_width(7)), "") << "it is settled";
    EXPECT_EQ(options.optimizer.learning_rate, rate);
  }
}

TEST(SettleRate, LeavesWhatWasSaidAlone) {
  TrainOptions rate;
  rate.optimizer.learning_rate = 0.003;
  EXPECT_EQ(settle_rate(rate, of_width(2048)), "");
  EXPECT_EQ(rate.optimizer.learning_rate, 0.003);
  EXPECT_FALSE(rate.optimizer.warmup) << "train.conf says auto, as ever";
  TrainOptions warmup;
  warmup.optimizer.warmup = 3;
  EXPECT_NE(settle_rate(warmup, of_width(2048)), "");
  EXPECT_EQ(warmup.optimizer.warmup, 3);
}

TEST(SettleRate, OfAResumedRunIsTheRatesThatItHad) {
  RunInputs inputs = of_width(2048);
  inputs.recorded.emplace();
  inputs.recorded->settings.set("lr", 0.02);
  inputs.recorded->settings.set("warmup", 7);
  TrainOptions options;
  EXPECT_EQ(settle_rate(options, inputs), "auto: as the resumed run has it");
  EXPECT_EQ(options.optimizer.learning_rate, 0.02);
  EXPECT_EQ(options.optimizer.warmup, 7);
  inputs.recorded->settings = Document();  // of an older program
  TrainOptions unknown;
  EXPECT_EQ(settle_rate(unknown, inputs), "auto: 0.001 x 256 / hidden_size 2048");
}

}  // namespace
}  // namespace moeloom
