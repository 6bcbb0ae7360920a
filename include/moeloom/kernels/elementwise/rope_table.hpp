// The angles of rotary position embedding: which pairs of a head's elements turn, how fast, and how far.
//
// angle = position * frequency_i, frequency_i = theta^(-2i / rotary_dim) (Su et al. 2021) before scaling, for
// pair i of rotary_dim / 2, rounded up. The scalings are those of Hugging Face's rope_scaling /
// rope_parameters, their fields named as there. No collective.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <optional>
#include <variant>
#include <vector>

namespace moeloom {

/// Which elements of the turned ones make pair i, in and out.
enum class RopePairs {
  kHalfSplit,            // i with i + rotary_dim/2 (Qwen, Llama, ...)
  kInterleaved,          // 2i with 2i + 1 (Glm4)
  kInterleavedToHalves,  // read at 2i and 2i + 1, written to i and i + rotary_dim/2 (DeepSeek)
};

/// Every frequency divided by factor.
struct LinearScaling {
  double factor = 1;
  bool operator==(const LinearScaling&) const = default;
};

/// Llama 3.1: wavelengths above original/low_freq_factor are divided by factor, those below
/// original/high_freq_factor kept, and between them the two are mixed.
struct Llama3Scaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
  bool operator==(const Llama3Scaling&) const = default;
};

/// Peng et al. 2023: frequencies that turn more than beta_fast times over the original length are kept, those
/// below beta_slow turns divided by factor, a ramp over the pairs between them.
struct YarnScaling {
  double factor = 1;
  /// What cos and sin are multiplied by. Unset: yarn_mscale(factor, mscale) / yarn_mscale(factor,
  /// mscale_all_dim) where both are given and not 0 (DeepSeek), else yarn_mscale(factor, 1).
  std::optional<double> attention_factor = {};
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 0;
  double mscale_all_dim = 0;
  bool truncate = true;  // the ramp's ends are rounded outwards to whole pairs
  double original_max_position_embeddings = 4096;
  bool operator==(const YarnScaling&) const = default;
};

/// Phi3: a factor of its own for each frequency, one list for sequences of up to
/// original_max_position_embeddings positions and another for longer ones. PhiMoE: so with what cos and sin
/// are multiplied by.
struct LongRopeScaling {
  std::vector<double> short_factor = {};  // rotary_dim / 2 numbers each
  std::vector<double> long_factor = {};
  /// max_position_embeddings / original_max_position_embeddings, where the config does not give it.
  double factor = 1;
  /// Unset: sqrt(1 + ln(factor) / ln(original_max_position_embeddings)), 1 for factors up to 1.
  std::optional<double> attention_factor = {};
  /// These come before attention_factor; both or none.
  std::optional<double> short_mscale = {};
  std::optional<double> long_mscale = {};
  Index original_max_position_embeddings = 4096;
  bool operator==(const LongRopeScaling&) const = default;
};

/// HunYuan's "dynamic" with an alpha: theta alpha^(rotary_dim / (rotary_dim - 2)) in place of theta, at any
/// length.
struct NtkAlphaScaling {
  double alpha = 1;
  bool operator==(const NtkAlphaScaling&) const = default;
};

/// Gemma4's "proportional": pairs reach across the whole head, and of the rotary_dim / 2 only the first
/// `turned` turn, at frequency_i / factor; the others have a frequency of 0.
struct ProportionalScaling {
  Index turned = 0;
  double factor = 1;
  bool operator==(const ProportionalScaling&) const = default;
};

using RopeScaling = std::variant<std::monostate, LinearScaling, Llama3Scaling, YarnScaling, LongRopeScaling,
                                 NtkAlphaScaling, ProportionalScaling>;

/// The angles of some layers of a model. No scaling: std::monostate.
struct RopeSettings {
  Index rotary_dim = 0;  // elements of a head that turn; 0: none. If it is odd, one more turns
  double theta = 10000;
  RopePairs pairs = RopePairs::kHalfSplit;
  RopeScaling scaling = {};
  Index first_dim = 0;  // the first turned element of a head; those before it pass through
  bool operator==(const RopeSettings&) const = default;
};

/// 1 + 0.1 mscale ln(factor), 1 for factors up to 1. DeepSeek also multiplies its attention scores by the
/// square of yarn_mscale(factor, mscale_all_dim).
double yarn_mscale(double factor, double mscale);

/// How fast each pair turns, radians a position [rotary_dim / 2, rounded up], in sequences of so many
/// positions. Throws ShapeError for settings that have no frequencies: a negative rotary_dim, a factor that
/// is not positive, a list of another length.
std::vector<double> rope_frequencies(Index sequence_length, const RopeSettings& settings);

/// Whether a sequence that grows from `before` to `now` positions turns at other frequencies from its first
/// position on (longrope): keys that were turned before are then void.
bool rope_turns_anew(Index before, Index now, const RopeSettings& settings);

/// What cos and sin are multiplied by in sequences of so many positions.
double rope_attention_factor(Index sequence_length, const RopeSettings& settings);

/// cos and sin [positions, rotary_dim / 2] times the attention factor, computed in double.
struct RopeTable {
  Matrix cosine;
  Matrix sine;
  RopePairs pairs = RopePairs::kHalfSplit;
  Index first_dim = 0;
  Index shortest_served = 0;  // sequences shorter than this need another table (longrope)
  Index long_begin = 0;  // rows from here on are of sequences longer than this many positions; 0: none are

  static double bytes_of(Index positions, Index rotary_dim) { return array_bytes(positions * rotary_dim); }
  Index rotary_dim() const { return 2 * cosine.cols(); }
  Index positions() const { return cosine.rows(); }
  /// The row of position 0 in a sequence of this length.
  Index first_row(Index sequence_length) const { return sequence_length > long_begin ? long_begin : 0; }
  /// Whether it holds the angles of sequences of this length: of one as long as the longest of a batch.
  bool serves(Index sequence_length) const {
    return sequence_length <= positions() - long_begin && sequence_length >= shortest_served;
  }
};

/// The table of a batch whose longest sequence has so many positions; it serves shorter ones too, except that
/// beyond longrope's original_max_position_embeddings it holds the long factors. Throws ShapeError for
/// settings that have no frequencies.
RopeTable make_rope_table(Index positions, const RopeSettings& settings);

/// The table of sequences of any lengths up to `positions`. Where those beyond longrope's original length
/// turn in another way, it has the rows of shorter ones first, and theirs from long_begin on. Throws as
/// make_rope_table().
RopeTable make_rope_table_of_lengths(Index positions, const RopeSettings& settings);

/// Positions for a table that serves this length and, as far as one table can, the longer ones that will
/// follow while a text grows: the next power of two.
Index roomy_rope_positions(Index sequence_length, const RopeSettings& settings);

}  // namespace moeloom
