// The weights of one rank: two stretches of memory, one replicated over the world, one over dp, and names for
// their parts.
//
// All gradients of a placement lie in one arena and the values of those weights in others of the same layout
// (floats; halves, and what they lack to be floats), so a gradient reduction or a gathering of updated
// weights is an exchange of one stretch, without a copy.
#pragma once

#include "kernels/dropout.hpp"
#include "moe/dispatch/row_buffer.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/tensor/exact_sums.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/matrix.hpp"
#include "moeloom/tensor/stored_rows.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moeloom {

enum class Placement {
  kWorld,    // the same on every rank
  kExperts,  // the experts of this ep rank; the same down a dp column
};
inline constexpr std::array kPlacements = {Placement::kWorld, Placement::kExperts};

/// kFanIn: uniform in +-1 / sqrt(cols); kByRank: normal with deviation 1 / rows of a group (PEFT's two ways
/// to begin an adapter's A).
enum class Init { kNormal, kOnes, kZeros, kLogUniform, kFanIn, kByRank };

/// How a checkpoint keeps rows of a parameter. It is said, never guessed: where 2F = D or F = D the shapes of
/// both are the same.
enum class SliceLayout {
  kRows,              // one row after the other
  kTransposed,        // one column after the other, shape.back() elements apart
  kInterleaved,       // the same; in a column the first half of the rows alternates with the second
  kSteps,             // rows shape.back() elements apart, in them elements column_step apart
  kInterleavedSteps,  // the same; the first half of the rows alternates with the second
  kTurnedSteps        // rows column_step apart, in them elements shape.back() apart
};

/// A tensor of the checkpoint, or a part of one, that is some rows of a parameter.
struct HfSlice {
  std::string name;  // "model.layers.0.mlp.experts.3.gate_proj.weight"
  Index row_begin = 0;
  Index rows = 0;
  std::vector<Index> shape;  // of the whole tensor, as in the file
  Index source_begin = 0;    // its first element in that tensor
  SliceLayout layout = SliceLayout::kRows;
  Index column_step = 1;  // of layouts in steps
};

/// What a factor of an adapter adds to (kernels/low_rank.hpp).
struct AdapterRole {
  std::string base;    // name of the parameter
  Index row = 0;       // the first of a group's rows of it
  float scale = 1;     // s
  bool is_a = true;    // A; else B, which follows it in a list of specifications
  double dropout = 0;  // share of its inputs that training leaves out; the same in all of a list
};

struct ParameterSpec {
  std::string name;  // "model.layers.0.mlp.experts.gate_up_proj"
  Index rows = 0;
  Index cols = 0;
  Placement placement = Placement::kWorld;
  /// Experts in it (1 for a dense weight), each rows / groups rows; their global ids; how many in all.
  Index groups = 1;
  std::vector<Index> group_ids = {0};
  Index total_groups = 1;
  Index layer = -1;       // -1: embeddings, final norm, head
  bool is_matrix = true;  // norms and biases are not: they may be spared weight decay
  Init init = Init::kNormal;
  /// A matrix may be kept in other ways: frozen as bf16 or F16, if its numbers are so in the file; trained
  /// as --masters says.
  Storage stored = Storage::kFp32;
  /// How its gradient is kept: kFp32 or kBf16, which trained matrices of experts may have.
  Storage gradient = Storage::kFp32;
  bool frozen = false;  // keeps its values: it has no gradient to speak of and no optimizer state
  std::optional<AdapterRole> adapter = {};  // none: a weight of the model itself
  std::vector<HfSlice> slices;

  double numbers() const { return static_cast<double>(rows) * static_cast<double>(cols); }
};

// Parts of a backward, each of the parameters whose gradients it completes: the head and the final norm, then
// from the last layer to the first its experts and the rest of it, by its number, then the embeddings (and a
// head that is tied). A forward reads them the other way round.
inline constexpr Index kHeadPart = -2;
inline constexpr Index kEmbeddingPart = -1;
/// Of experts alone.
constexpr Index experts_part(Index layer) {
  return kHeadPart - 1 - layer;
}
Index part_of_backward(const ParameterSpec& spec);

struct Parameter {
  ParameterSpec spec;
  /// Of its gradients from the start of their arena, and of fp32 values from that of theirs.
  Index offset = 0;
  /// Of one that is not stored as fp32 the shape alone, without data: products read `halves`.
  MatrixView value;
  HalfView halves = {};
  std::uint16_t* lows = nullptr;  // of Storage::kSplit
  bool is_filled_here = true;     // else by another rank of the node, in whose memory it lies
  /// Of a frozen matrix without rows, so that its product can be left out, and of experts' frozen biases. A
  /// frozen vector of all ranks has one that nobody reads: it comes with the gradient of the layer's input.
  MatrixView grad;
  /// Of one that is kept as bf16, of which `grad` is the shape alone.
  Bf16View grad_halves = {};

  ConstRows gradient() const {
    return grad_halves.data != nullptr ? ConstRows(grad_halves) : ConstRows(grad);
  }
  /// What products read.
  ConstRows weights() const { return halves.data != nullptr ? ConstRows(halves) : ConstRows(value); }
  /// What an update changes and a checkpoint holds.
  StoredRows stored() const { return halves.data != nullptr ? StoredRows(halves, lows) : StoredRows(value); }
};

/// Gradients whose sums have the same bits on every mesh: what ranks and micro-batches add up are leaves, the
/// gradients over a few sequences.
struct LeafSettings {
  Index sequences = 0;  // of a leaf; 0: sums follow the tree of ranks, and their bits depend on it
  Index per_step = 1;   // leaves of the global batch

  bool exact() const { return sequences > 0; }
};

class DiskMemory;
class NodeHalves;
class NodeWeights;

/// What a rank does not hold of the dense parameters.
struct ShardedDense {
  /// Of gradients, what it does not own, once it is reduced (ShardedOptimizer).
  bool gradients = false;
  /// Where the values lie, once for the ranks of a node; null: each rank has its own.
  std::shared_ptr<const NodeWeights> weights = nullptr;
};

/// Where parameters lie that are not in memory of the rank's own; made of the same specifications.
struct StoreHomes {
  std::shared_ptr<NodeMemory> experts = nullptr;       // those of experts, in this rank's part
  std::shared_ptr<const NodeHalves> halves = nullptr;  // frozen dense ones in halves
  ShardedDense dense = {};                             // the other dense ones
  std::shared_ptr<const DiskMemory> frozen = nullptr;  // frozen experts in halves: disk_bytes()
};

class ParameterStore {
 public:
  /// Zeros.
  explicit ParameterStore(std::vector<ParameterSpec> specs, StoreHomes homes = {},
                          const LeafSettings& leaves = {});
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Of what the ranks of a node keep once, the bytes that this rank holds.
  Index shared_bytes() const;
  const ShardedDense& dense() const { return homes_.dense; }
  /// What this rank wrote of values that others share is there for them, and theirs for this one. Collective
  /// over the node.
  void settle() const;
  /// Floats that the values of dense parameters take which a node's ranks may share.
  static Index dense_floats(const std::vector<ParameterSpec>& specs, bool with_halves);
  /// That weights take which may lie on a disk.
  static Index disk_bytes(const std::vector<ParameterSpec>& specs);
  /// Of values that lie in this rank's memory, of those that `sharers` ranks keep once its part: the ranks of
  /// a node frozen dense halves, with shard_dense all that is dense. Of frozen experts on a disk those of two
  /// layers are held.
  static double value_bytes(const std::vector<ParameterSpec>& specs, Placement placement,
                            const Keeping& keeping, Index sharers);
  /// Weights of a layer that lie on a disk begin to come, or are not used soon. -1 and beyond: there is none.
  void read_ahead(Index layer) const;
  void leave(Index layer) const;
  void leave(const Parameter& parameter) const;
  /// None of them is used soon but the first layer's: a forward comes next.
  void leave_all() const;
  /// Throws ShapeError for a name that is not there.
  const Parameter& find(const std::string& name) const;
  /// Stored as floats: what is trained comes first and lies as its gradients do; what is frozen follows.
  std::span<float> values(Placement placement) { return arena(placement).values; }
  /// Stored in other ways and trained: element i has gradient begin + i. `low` is empty without a split.
  struct TrainedHalves {
    Index begin = 0;
    std::span<std::uint16_t> high, low;
  };
  TrainedHalves trained_halves(Placement placement) const { return arena(placement).trained_halves; }
  std::span<float> gradients(Placement placement) { return arena(placement).gradients; }
  /// Those that are kept as bf16, which follow: number i is that of element begin + i.
  struct HalfGradients {
    Index begin = 0;
    std::span<std::uint16_t> numbers;
    bool has(Index element) const { return element >= begin && !numbers.empty(); }
  };
  HalfGradients half_gradients(Placement placement) const { return arena(placement).half_gradients; }
  Index size(Placement placement) const { return arena(placement).size; }
  const LeafSettings& leaves() const { return leaves_; }
  /// Of the gradients of a placement; null where sums are not exact.
  ExactSums* sums(Placement placement) const { return arena(placement).sums.get(); }
  /// Whether a leaf of this step was no number that can be added up.
  bool has_broken_sums() const;

  /// What adapters leave out of their inputs now; it stays where it is. Nothing, but between these two.
  const Dropout& dropout() const { return dropout_; }
  void drop_inputs(std::uint64_t seed) { dropout_ = {dropout_share_, seed}; }
  void keep_inputs() { dropout_ = {}; }

  /// Counts changes of the values, so that what was made from them (packed faces) knows when it is old.
  std::uint64_t version() const { return version_; }
  void mark_changed() { ++version_; }
  /// Whether no weight of the last update is still on its way here (ShardedOptimizer): without that, nothing
  /// but the forward that waits for each may read them.
  bool is_whole() const { return is_whole_; }
  /// For whoever reads weights between two updates. Throws ShapeError while some are on their way.
  void require_whole() const { require(is_whole_, "weights of the last update are still on their way"); }
  void set_whole(bool whole) { is_whole_ = whole; }
  /// Gradients start anew: dense ones are zeros, those of experts are whatever they were until the next
  /// backward writes them, which spares a pass over by far the most of them.
  void restart_gradients();
  /// How the next backward treats gradients of experts.
  Write expert_gradients() const { return expert_gradients_; }
  void mark_gradients_written() { expert_gradients_ = Write::kAdd; }
  /// Dense gradients of a part of a backward are zeros again, and take no memory.
  void drop_gradients(Index part);

 private:
  struct Arena {
    Index size = 0;     // stored as floats
    Index trained = 0;  // of them
    RowBuffer storage;  // floats, unless a node shares them, then all gradients, halves last
    RowBuffer halves;   // where the node does not share them
    std::uint16_t* first_half = nullptr;    // trained, then what they lack; two in a float's place
    std::uint16_t* first_frozen = nullptr;  // which follow, unless they lie on a disk
    TrainedHalves trained_halves;
    std::span<float> values;
    std::span<float> gradients;
    HalfGradients half_gradients;
    std::unique_ptr<ExactSums> sums;

    struct Gradient {
      MatrixView floats;
      Bf16View halves;
    };
    Gradient gradient_of(const ParameterSpec& spec, Index offset) const;
  };
  Arena& arena(Placement placement) { return arenas_[static_cast<std::size_t>(placement)]; }
  const Arena& arena(Placement placement) const { return arenas_[static_cast<std::size_t>(placement)]; }

  struct Sizes;
  static std::array<Sizes, kPlacements.size()> sizes_of(const std::vector<ParameterSpec>& specs,
                                                        bool with_halves);
  /// shared, on_disk: where the values and the frozen halves lie; null: in memory of their own.
  void allocate(Arena& home, const Sizes& sizes, float* shared, std::uint16_t* on_disk);
  void clear_gradients(Arena& home) const;
  void place(ParameterSpec spec, Sizes& filled);
  void place_trained_halves(ParameterSpec spec, Sizes& filled);
  void place_frozen_halves(ParameterSpec spec, Sizes& filled);
  void place_shared(ParameterSpec spec);

  LeafSettings leaves_;
  StoreHomes homes_;
  std::array<Arena, 2> arenas_;
  Matrix unread_;  // gradients of frozen vectors
  std::vector<Parameter> parameters_;
  double dropout_share_ = 0;  // of its adapters
  Dropout dropout_;
  std::uint64_t version_ = 1;
  bool is_whole_ = true;
  Write expert_gradients_ = Write::kAdd;
};

}  // namespace moeloom
