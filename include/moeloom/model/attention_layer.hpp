// The attention half of a decoder layer: norm, q k v, per-head norm, rotary embedding, attention, output,
// residual.
#pragma once

#include "moeloom/kernels/registry.hpp"
#include "moeloom/model/attention.hpp"
#include "moeloom/model/linear.hpp"

#include <optional>

namespace moeloom {

/// Keys and values of the positions so far, of one sequence and one layer.
struct KeyValueCache {
  Matrix key;  // [capacity, kv width]
  Matrix value;
};

/// What is the same for every layer of a forward.
struct AttentionContext {
  Index sequences = 0;
  Index sequence_length = 0;
  std::span<const std::int32_t> position_ids;  // [T]
  const RopeTable& rope;
};

struct AttentionActivations {
  Matrix input;                      // [T, D], the residual stream as it came
  Matrix normed;                     // [T, D]
  Matrix qkv;                        // [T, (H + 2 KV) hd], before the per-head norms
  Matrix query;                      // [T, H hd], normed and turned
  Matrix key;                        // [T, KV hd]
  Matrix context;                    // [T, H hd]
  Matrix log_sum_exp;                // [T, H]
  std::vector<float> inv_rms;        // [T]
  std::vector<float> query_inv_rms;  // [T H]
  std::vector<float> key_inv_rms;    // [T KV]
};

struct AttentionWorkspace {
  Matrix d_context;
  Matrix d_query;
  Matrix d_key;
  Matrix d_qkv;
  Matrix d_normed;
};

class AttentionLayer {
 public:
  AttentionLayer(const ModelConfig& config, const ParameterStore& store, Index layer);

  /// hidden [T, D]: attention of it is added in place.
  void forward(const KernelTable& kernels, const AttentionContext& context, MatrixView hidden);
  /// The same for the next positions of one sequence: context.position_ids[0] positions are in the cache,
  /// which is extended. Keeps nothing for a backward.
  void forward_cached(const KernelTable& kernels, const AttentionContext& context, KeyValueCache& cache,
                      MatrixView hidden);
  /// d_hidden [T, D], gradient of the output, becomes that of the input.
  void backward(const KernelTable& kernels, const AttentionContext& context, MatrixView d_hidden,
                AttentionWorkspace& workspace);

  const AttentionActivations& activations() const { return saved_; }

 private:
  void project(const KernelTable& kernels, const AttentionContext& context, ConstMatrixView hidden);
  MatrixView query_part(Matrix& qkv) const { return qkv.view().cols_from(0, query_width_); }
  MatrixView key_part(Matrix& qkv) const { return qkv.view().cols_from(query_width_, kv_width_); }
  MatrixView value_part(Matrix& qkv) const {
    return qkv.view().cols_from(query_width_ + kv_width_, kv_width_);
  }
  AttentionShape shape(const AttentionContext& context, Index key_length) const;

  Index heads_;
  Index kv_heads_;
  Index head_dim_;
  Index query_width_;
  Index kv_width_;
  float epsilon_;
  Norm norm_;
  Norm query_norm_;
  Norm key_norm_;
  Linear qkv_;
  Linear output_;
  AttentionActivations saved_;
};

}  // namespace moeloom
