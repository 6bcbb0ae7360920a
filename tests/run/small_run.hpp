// A run of a few steps of a small model of bytes, in the process of a test.
#pragma once

#include "moeloom/run/training.hpp"

#include <fstream>

#include "record/metrics.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

inline ModelConfig small_model() {
  ModelConfig shape;
  shape.num_hidden_layers = 2;
  shape.hidden_size = 16;
  shape.moe_intermediate_size = 8;
  shape.num_attention_heads = 2;
  shape.num_key_value_heads = 1;
  shape.head_dim = 8;
  shape.num_experts = 4;
  shape.num_experts_per_tok = 2;
  return shape;
}

class SmallRun : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 500; ++i)
      text << "And the weaver drew thread " << i * i % 89 << " through the loom.\n";
  }

  TrainOptions options(const std::string& run) const {
    TrainOptions options;
    options.model.shape = small_model();
    options.data.sources = {{folder_ / "corpus.txt"}};
    options.batch = {.sequences = 4, .length = 16};
    options.run.folder = folder_ / run;
    options.run.steps = 3;
    options.run.eval_sequences = 4;
    options.run.sample_chars = 0;
    return options;
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    for (const StepMetrics& step : read_metrics(folder_ / run / "metrics.jsonl")) all.push_back(step.loss);
    return all;
  }

  const testing::TemporaryFolder folder_;
};

inline RunEnd run_to_its_end(Training& training) {
  while (training.step()) continue;
  return training.finish();
}

}  // namespace moeloom::testing
