// The attention half of a decoder layer: norm, heads, attention, output projection, perhaps a norm of it,
// residual.
#pragma once

#include "moeloom/model/attention/attention.hpp"
#include "moeloom/model/attention/attention_heads.hpp"
#include "moeloom/model/attention/key_value_cache.hpp"
#include "moeloom/model/attention/latent_heads.hpp"

#include <variant>

namespace moeloom {

struct AttentionActivations {
  Matrix input;                // [T, D], the residual stream as it came
  RowMemory normed;            // [T, D], of what the dense products multiply
  Matrix context;              // [T, H value_dim]
  Matrix log_sum_exp;          // [T, H]
  std::vector<float> inv_rms;  // [T]
};

struct AttentionWorkspace {
  Matrix d_output;  // [T, D], where a norm stands between the output and the residual
  Matrix d_context;
  Matrix d_normed;
  HeadsWorkspace heads;
};

class AttentionLayer {
 public:
  AttentionLayer(const AttentionSpec& spec, const NormSpec& norm, const std::optional<NormSpec>& output_norm,
                 const ParameterStore& store);

  /// hidden [T, D]: attention of it is added in place.
  void forward(const KernelTable& kernels, const AttentionContext& context, MatrixView hidden);
  /// For one sequence of up to `capacity` positions; it keeps the layer's window of them.
  KeyValueCache make_cache(Index capacity) const;
  /// As forward for the next positions of one sequence: context.position_ids[0] positions were in the
  /// cache, which is extended. Keeps nothing for a backward.
  void forward_cached(const KernelTable& kernels, const AttentionContext& context, KeyValueCache& cache,
                      MatrixView hidden);
  /// d_hidden [T, D], gradient of the output, becomes that of the input.
  void backward(const KernelTable& kernels, const AttentionContext& context, MatrixView d_hidden,
                AttentionWorkspace& workspace);

  const AttentionActivations& activations() const { return saved_; }

 private:
  AttentionHeads project(const KernelTable& kernels, const AttentionContext& context, ConstMatrixView hidden);
  void add_output(const KernelTable& kernels, MatrixView hidden);
  void backward_output(const KernelTable& kernels, ConstMatrixView d_hidden, AttentionWorkspace& workspace);
  AttentionShape shape(const AttentionContext& context, Index key_length) const;

  AttentionSpec spec_;
  Norm norm_;
  std::variant<ProjectedHeads, LatentHeads> heads_;
  Linear output_;
  std::optional<OutputNorm> output_norm_;
  AttentionActivations saved_;
};

}  // namespace moeloom
