// What a trainer trains on, whoever makes its batches.
#pragma once

#include "train/batch_sampler.hpp"

#include <functional>

namespace moeloom {

/// Two functions of the data, a seed and the step alone: every rank gets the same answers. Whatever a view of
/// them was made of must outlive it.
struct BatchSource {
  /// Of a rank and micro-batch. No collective: any rank may ask for any rank's.
  std::function<Batch(Index step, Index micro_batch, Index rank)> train;
  /// Of all batches of the step, so that a loss can be scaled before the first of them runs.
  std::function<StepTokens(Index step)> tokens_of;

  BatchSource(decltype(train) train_of, decltype(tokens_of) count)
      : train(std::move(train_of)), tokens_of(std::move(count)) {}
  /// A BatchSampler, ExampleBatches: what has members of these names.
  template <typename Batches>
  BatchSource(const Batches& batches)
      : train([&batches](Index step, Index micro_batch, Index rank) {
          return batches.train(step, micro_batch, rank);
        }),
        tokens_of([&batches](Index step) { return batches.tokens_of(step); }) {}
};

}  // namespace moeloom
