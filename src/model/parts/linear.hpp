// One dense weight [out, in], perhaps a bias and an adapter, and their gradients.
#pragma once

#include "kernels/low_rank.hpp"
#include "model/parts/parameters.hpp"
#include "moe/dispatch/trip_shape.hpp"
#include "moeloom/kernels/dense.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// An empty gradient is that of a frozen weight: backward leaves it out.
struct Linear {
  MatrixView weight;                 // [out, in]; of one that is stored in halves the shape alone
  MatrixView grad;                   // without rows where the weight is frozen
  std::span<const float> bias = {};  // [out]; empty: there is none
  std::span<float> bias_grad = {};
  ExactSums* sums = nullptr;  // that the gradients are leaves of
  std::vector<LowRank> adapter = {};
  ConstHalfView halves = {};  // in place of the weight's numbers, if there are any

  static Linear of(const ParameterStore& store, const std::string& weight);
  /// module.weight and module.bias.
  static Linear with_bias(const ParameterStore& store, const std::string& module);
  /// Either of them, as a specification says.
  static Linear of_module(const ParameterStore& store, const std::string& module, bool has_bias) {
    return has_bias ? with_bias(store, module) : of(store, module + ".weight");
  }
  ConstRows weights() const { return halves.data != nullptr ? ConstRows(halves) : ConstRows(weight); }
  Index out() const { return weight.rows; }
  Index in() const { return weight.cols; }

  // Keys: by which an adapter's inputs are dropped (kernels/dropout.hpp), the same in forward and backward;
  // without any, those of the rows of x.
  /// Those of the rows of x, where they are needed; else none.
  std::vector<std::uint64_t> keys_of(ConstRows x) const;

  /// y [T, out], written or added to.
  void forward(const DenseKernel& kernel, ConstRows x, MatrixView y, Write mode = Write::kReplace,
               RowKeys keys = {}) const;
  /// The gradients of weight, bias and adapter, added to, or to their exact sums.
  void backward_weight(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x, RowKeys keys = {}) const;
  /// dx [T, in], written or added to; no gradient of the weights. It knows no x: an adapter that drops inputs
  /// needs keys.
  void backward_input(const DenseKernel& kernel, ConstMatrixView dy, MatrixView dx,
                      Write mode = Write::kReplace, RowKeys keys = {}) const;
  /// dx [T, in], written or added to; the gradients are added to.
  void backward(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x, MatrixView dx,
                Write mode = Write::kReplace, RowKeys keys = {}) const;
};

/// What adapters add to a parameter of the store, by its name; of experts stacked as its weights are.
std::vector<LowRank> adapter_of(const ParameterStore& store, const std::string& base);

/// Of what adapters' products hold: U and dU of rows of experts (ExpertWorkspace), as much as the layer needs
/// that needs most; where inputs are dropped, copies of some rows, which one product has at a time, and the
/// keys of rows: of tokens, and of each layer's experts from forward to backward.
double adapter_bytes(const std::vector<ParameterSpec>& specs, const Job& job, LayerRows rows);

/// sums [cols of x] += rows of x, in chunks of kSumChunkRows, the chunks in order.
void add_row_sums(ConstMatrixView x, std::span<float> sums);

}  // namespace moeloom
