// AdamW with its state sharded over the ranks that replicate a parameter (ZeRO stage 1), and the two sums it
// needs: gradients over those ranks, and the norm over all parameters.
//
// A parameter's elements are cut into blocks of at most kBlockElements, inside one expert or one dense
// weight. A rank owns whole blocks, and of Muon's whole weights, so a block's sum of squares has the same
// bits however many ranks share the work, and the norm, added over blocks in global order, has them at every
// ep.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/base/stretch.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/train/optimizer_settings.hpp"
#include "train/adamw.hpp"
#include "train/muon.hpp"
#include "train/muon_weights.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace moeloom {

class TravellingSums;
class TravellingWeights;

/// Elements [begin, begin + count) of an arena and the parameter and group they belong to.
struct OwnedBlock {
  Placement placement = Placement::kWorld;
  Index parameter = 0;  // index into ParameterStore::parameters()
  Index group = 0;      // local
  Index begin = 0;      // in the arena of gradients
  Index count = 0;
  Index state = 0;        // where its first moment starts in moments(), at a whole unit
  Index second = 0;       // the same of the second one; -1: Muon's, which has none
  Index block = 0;        // of its group
  Index first_block = 0;  // its parameter's, in the order of the norm's sum
};

class ShardedOptimizer {
 public:
  static constexpr Index kBlockElements = 1 << 16;
  /// Of what is reduced at once: bounds the scratch to 16 MiB.
  static constexpr Index kBucketElements = Index{1} << 22;
  /// Of those that travel by layer, at once: one is on the wire while another is added up.
  static constexpr Index kBucketsAtOnce = 3;

  /// Of `job` it reads what is kept, and when sums and weights travel: at the end of backward and of the
  /// update, or by layer while backward and the next forward go on. The bits are the same, but where ranks
  /// are added before micro-batches (ShardedDense::gradients). Collective over nothing. The store and the
  /// mesh must outlive it. Throws ShapeError for a parameter without a group on this rank.
  ShardedOptimizer(ParameterStore& store, const Mesh& mesh, OptimizerSettings settings, const Job& job = {});
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// Sums gradients over the ranks that share them, in bounded buckets: afterwards the owned blocks of the
  /// gradient arenas hold the sums, everything else there is scratch; dropped, where dense gradients are
  /// sharded. Collective over the world.
  void reduce_gradients();
  /// The same by layer, in pieces, each of the gradients that backward has completed after `part`
  /// (Decoder::GradientsDone); of a micro-batch before the last, only of those that are sharded: the sum is
  /// what the next adds to. Collective over the world, all ranks alike.
  void begin_reduction(Index part, bool is_last);
  /// Waits for those sums.
  void finish_reduction();
  /// Lets sums and weights that travel move on, without waiting; cheap enough to be called between any two
  /// tasks.
  void progress();
  /// Whether the sums of a step are made by begin_reduction() and finish_reduction().
  bool reduces_by_layer() const;
  /// Before the last micro-batch too.
  bool reduces_each() const { return reduces_by_layer() && store_.dense().gradients; }
  bool gathers_by_layer() const { return exchange_.overlap_gather; }
  /// The 2-norm of all gradients, each parameter counted once whoever holds it; the same bits on every rank
  /// and at every ep. After reduce_gradients(); collective over the world.
  double gradient_norm();
  /// Clips by min(1, max_grad_norm / (norm + 1e-6)), updates the owned blocks, and gathers the new weights
  /// everywhere, as they are stored; by layer it begins to, and await_weights() ends it. rows_per_expert:
  /// rows each expert got this step in the whole world, by [layer][global expert] (empty inner vectors for
  /// dense layers); needed by StarvedExperts::kSkip only. Collective over the world.
  void update(double learning_rate, double norm, const std::vector<std::vector<Index>>& rows_per_expert);

  /// Waits for the new weights that a forward reads in `part` (part_of_backward) or before it; those of all.
  void await_weights(Index part);
  void await_weights();

  const OptimizerSettings& settings() const { return settings_; }
  const Keeping& keeping() const { return keeping_; }
  const std::vector<OwnedBlock>& owned_blocks() const { return blocks_; }
  /// A block's place in the order of the norm's sum: parameters in store order, experts by global id.
  Index norm_place(const OwnedBlock& block) const;
  /// Of the owned blocks, each at its `state` and `second`.
  Moments& moments() { return moments_; }
  MomentView moments_of(const OwnedBlock& block, Moment moment) {
    return moments_.view(moment, moment == Moment::kFirst ? block.state : block.second, block.count);
  }
  /// Updates so far of each parameter's groups, by [parameter][local group]; what a checkpoint keeps.
  std::vector<std::vector<Index>>& times() { return times_; }

  // Of a rank whose parameters these are:
  /// What it receives of the largest bucket of a reduction, of several that travel at once; with exact sums
  /// its own part as integers.
  static double reduction_bytes(const std::vector<ParameterSpec>& specs, const Job& job);
  /// The most that is not reduced yet of dense gradients that are sharded.
  static double waiting_gradient_bytes(const std::vector<ParameterSpec>& specs);
  /// Of weights that are orthogonalised together.
  static double matrix_bytes(const std::vector<ParameterSpec>& specs, OptimizerKind optimizer);

 private:
  /// A stretch of an arena that is reduced and gathered at once, and how much of it each rank owns.
  struct Bucket {
    Placement placement = Placement::kWorld;
    Index begin = 0;
    Index part = 0;   // of a backward, after which its gradients are complete
    Index place = 0;  // of that part in a forward
    std::vector<Index> counts_per_rank;
    std::vector<Index> offsets;  // their prefix sum, [ranks + 1]
    Stretch blocks = {};         // of this rank's, in blocks_
  };

  /// Blocks at the beginning of `blocks` that one rank owns together: all of a weight of Muon's, else one.
  std::size_t unit_length(std::span<const OwnedBlock> blocks) const;
  std::size_t bucket_length(std::span<const OwnedBlock> blocks) const;
  void deal_blocks();
  void deal_bucket(Placement placement, std::span<const OwnedBlock> blocks);
  template <typename Number>
  static std::span<Number> stretch(std::span<Number> arena, const Bucket& bucket);
  /// What this rank owns, from the beginning of the bucket.
  Stretch mine_of(const Bucket& bucket) const;
  void begin_sum(const Bucket& bucket);
  void reduce_exactly(const Bucket& bucket, ExactSums& sums);
  bool is_sharded(const Bucket& bucket) const;
  bool is_of_halves(const Bucket& bucket) const;
  std::span<std::byte> gradients_of(const Bucket& bucket);
  /// The sums are there: they are squared while they are in cache, and what others own is dropped.
  void take_sums(const Bucket& bucket);
  void add_squares(const Stretch& blocks);
  /// use(gradient) with its floats or its halves.
  template <typename Use>
  decltype(auto) with_gradient(const OwnedBlock& block, Use&& use) const {
    const ParameterStore::HalfGradients halves = store_.half_gradients(block.placement);
    if (halves.has(block.begin))
      return use(std::span<const std::uint16_t>(halves.numbers)
                     .subspan(at(block.begin - halves.begin), at(block.count)));
    return use(
        std::span<const float>(store_.gradients(block.placement)).subspan(at(block.begin), at(block.count)));
  }
  StoredRows weights_of(const OwnedBlock& block) const;
  /// use(values, bucket) of its values, as often as they are stored in different places.
  template <typename Use>
  void with_values(const Bucket& bucket, Use use);
  void begin_to_gather(const Bucket& bucket);
  static Index place_in_forward(Index part);
  /// Of the block's place in the model and its time.
  std::uint64_t rounding_of(const OwnedBlock& block) const;
  void update_blocks(const Stretch& blocks, double learning_rate, double clip,
                     const std::vector<std::vector<Index>>& rows_per_expert);
  void update_matrices(double learning_rate, double clip,
                       const std::vector<std::vector<Index>>& rows_per_expert);
  struct MatrixBatch;
  void update_batch(const MatrixBatch& batch, double learning_rate, double clip);
  bool is_starved(const ParameterSpec& spec, Index group,
                  const std::vector<std::vector<Index>>& rows_per_expert) const;

  ParameterStore& store_;
  const Mesh& mesh_;
  OptimizerSettings settings_;
  Keeping keeping_;
  Exchange exchange_;
  std::vector<Bucket> buckets_;
  std::vector<Index> in_forward_;  // buckets, as a forward reads them
  std::unique_ptr<TravellingSums> travelling_;
  std::unique_ptr<TravellingWeights> arriving_;
  std::chrono::steady_clock::time_point next_look_ = {};
  std::vector<OwnedBlock> blocks_;
  std::vector<double> squares_;  // of their gradients after the last reduction, summed
  std::vector<std::vector<Index>> times_;
  Moments moments_;           // of owned elements
  Matrix updates_, stacked_;  // of matrices that are orthogonalised together
  OrthogonaliseWorkspace orthogonalise_;
  std::vector<std::int64_t> sums_;  // the same of exact sums
};

}  // namespace moeloom
