// Keys and values of a layer that later layers read, too, and what these make of their gradients.
//
// A copy: where a block is made again in backward, the lender's own keys are gone when its readers, which
// come after it and so go back before it, need them.
#pragma once

#include "model/parts/mixer_spec.hpp"
#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

class KeyValueCache;

struct LentKeys {
  Matrix key;    // [T, kv_heads*head_dim] of the lender's last forward, normed and turned
  Matrix value;  // [T, kv_heads*value_dim]
  Matrix d_key;  // the sum over readers, if there are gradients
  Matrix d_value;
  bool has_gradients = false;
  const KeyValueCache* cache = nullptr;  // the lender's, in a forward that has one

  /// Of the lender: in forward, and again when it is made again.
  void show(ConstMatrixView key_of, ConstMatrixView value_of);
  /// Of a reader, in backward.
  void add_gradients(ConstMatrixView d_key_of, ConstMatrixView d_value_of);
  /// Of the lender, in backward: both += what readers have added since it last took them.
  void take_gradients(MatrixView d_key_of, MatrixView d_value_of);

  /// Of a layer: 0 where it lends nothing.
  static double bytes_of(const MixerSpec& mixer, Index tokens);
};

}  // namespace moeloom
