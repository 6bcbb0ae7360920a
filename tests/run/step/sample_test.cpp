#include "step/sample.hpp"

#include "moeloom/model/hf/config.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(WhyNoSample, NamesTheFirstThatStandsInItsWay) {
  RunOptions run;
  run.prompt = "In";
  run.sample_chars = 30;
  ModelConfig config;
  config.vocab_size = 256;
  config.max_position_embeddings = 32;
  const ModelText bytes = ModelText::of("/nowhere", config);
  EXPECT_EQ(why_no_sample(run, &bytes, config), "");
  config.max_position_embeddings = 31;
  EXPECT_EQ(why_no_sample(run, &bytes, config),
            "`prompt` and `sample-chars` make 32 positions, but max_position_embeddings = 31");
  config.vocab_size = 512;
  EXPECT_EQ(why_no_sample(run, nullptr, config),
            "the model has no tokenizer: vocab_size = 512, and bytes need 256");
}

}  // namespace
}  // namespace moeloom
