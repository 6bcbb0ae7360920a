// Which tokens a rank trains on at a step: a function of (seed, step, place in the global batch) alone.
#pragma once

#include "moeloom/base/stretch.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/job/batch_shape.hpp"
#include "moeloom/model/batch.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// The file cut in two: training text first, the last `fraction` held out.
struct Split {
  Index train_begin = 0;
  Index train_end = 0;
  Index heldout_begin = 0;
  Index heldout_end = 0;
};
/// What is wrong with the lengths, as violations; empty when the training part holds a sequence for each of
/// `world` ranks that shares no input with another's (neighbours share a border token: one's last target,
/// the next one's first input), and the held-out part one sequence (or fraction = 0).
std::vector<std::string> split_violations(Index tokens, double fraction, Index sequence_length, Index world);
Split split_tokens(Index tokens, double fraction);

/// Throws ShapeError unless the global batch divides over ranks and micro-batches.
void check_shape(const BatchShape& shape, Index world);
/// `count` of `held` sequences, or all, dealt to ranks in stretches of at most `per_batch`: as many on every
/// rank, the last ones possibly empty. Throws ShapeError for per_batch < 1.
std::vector<Stretch> deal_heldout(Index held, Index count, Index per_batch, Index world, Index rank);

/// Of a whole step: all ranks and micro-batches.
struct StepTokens {
  Index tokens = 0;   // without padding
  Index targets = 0;  // tokens whose probability the loss is a mean over
};

class BatchSampler {
 public:
  /// The tokens must outlive it. Throws ShapeError unless the global batch divides over ranks and
  /// micro-batches, and the training part is longer than a sequence (the last target lies behind it).
  BatchSampler(const TokenSource& tokens, Split split, BatchShape shape, Index world, std::uint64_t seed);

  /// Rank r has the r-th stretch of the global batch, its micro-batches one after the other (or of each
  /// micro-batch the r-th stretch), so the global batch does not depend on the number of ranks. Windows start
  /// anywhere in the training part. No collective: any rank may ask for any rank's.
  Batch train(Index step, Index micro_batch, Index rank) const;
  /// Every token is a target.
  StepTokens tokens_of(Index step) const;
  /// Held-out windows, non-overlapping from the start, dealt to ranks in stretches: `count` sequences over
  /// all ranks (fewer if the part is shorter), at most `per_batch` a batch; the same number of batches on
  /// every rank, the last ones possibly empty. Throws ShapeError for per_batch < 1. No collective.
  std::vector<Batch> heldout(Index count, Index per_batch, Index rank) const;

 private:
  Batch windows(const std::vector<Index>& starts) const;

  const TokenSource& tokens_;
  Split split_;
  BatchShape shape_;
  Index world_;
  std::uint64_t seed_;
};

}  // namespace moeloom
