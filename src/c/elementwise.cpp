// Gated activations and norms of a caller's arrays.
#include "moeloom/kernels/elementwise/rmsnorm.hpp"

#include <optional>

#include "borrowed_rows.hpp"
#include "glu.hpp"
#include "guard.hpp"

namespace moeloom::c {

GatedActivation activation_of(const ml_glu_settings* settings) {
  if (settings == nullptr) return {};
  const ml_glu_settings known = known_part(settings, "ml_glu_settings");
  const std::string kind = known.kind == nullptr ? "silu" : known.kind;
  GatedActivation activation{.sparsity = known.sparsity,
                             .scale_on = known.scale_inputs != 0 ? RowScaleOn::kInputs : RowScaleOn::kResult};
  if (kind == "gpt_oss") {
    activation.alpha = 1.702f;
    activation.limit = 7;
    activation.up_offset = 1;
  } else if (const auto act = activation_named(kind)) {
    activation.act = *act;
  } else {
    throw ConfigError({"unknown activation \"" + kind +
                       "\"; known: silu, swish, gelu, gelu_pytorch_tanh, gelu_new, gpt_oss"});
  }
  check_settings(activation);
  return activation;
}

namespace {

std::optional<RowsIn> optional_rows(const ml_array* array, const char* name, std::span<const Index> shape) {
  if (array == nullptr) return std::nullopt;
  return std::optional<RowsIn>(std::in_place, check_array(array, name, shape), name, InPlace::kFlat);
}

std::span<const float> flat(const std::optional<RowsIn>& rows) {
  return rows ? rows->flat() : std::span<const float>();
}

/// Of R rows [R, 2F].
struct GluShape {
  explicit GluShape(const ml_array* gate_up)
      : rows(check_array(gate_up, "gate_up", {kAny, kAny}).shape[0]), inter(gate_up->shape[1] / 2) {
    check(gate_up->shape[1] % 2 == 0,
          [] { return "gate_up has an odd number of columns, and must be [R, 2F]"; });
  }
  Index rows, inter;
};

/// What both directions of a norm are given.
struct Norm {
  const ml_array *x, *gate, *weight;
  RmsNormSettings settings;

  Index cols() const { return cols_of(*x); }
  Index rows() const { return rows_of(*x); }
  void check_shapes() const {
    check_array(x, "x");
    check(cols() > 0, [] { return "x has rows of no element, which have no mean"; });
    check_array(weight, "weight", {cols()});
    check(settings.eps >= 0, [] { return "eps must not be negative"; });
    if (gate != nullptr) check_array(gate, "gate", shape_of(*x));
  }
};

/// inv_rms [rows]: the caller's, or kept.
void norm_forward(const Norm& norm, const RowsIn& x, const std::optional<RowsIn>& gate,
                  std::span<const float> weight, Rows y, std::span<float> inv_rms) {
  const RmsNormKernel kernel = fused_rmsnorm();
  if (gate)
    kernel.gated_forward(x.fp32(), gate->fp32(), weight, norm.settings, std::get<MatrixView>(y), inv_rms);
  else
    kernel.forward(x.fp32(), weight, norm.settings, y, inv_rms);
}

std::optional<RowsIn> gate_of(const Norm& norm) {
  if (norm.gate == nullptr) return std::nullopt;
  return std::optional<RowsIn>(std::in_place, *norm.gate, "gate");
}

std::optional<RowsOut> asked_for(const ml_array* array, const char* name, std::span<const Index> shape) {
  if (array == nullptr) return std::nullopt;
  return std::optional<RowsOut>(std::in_place, check_array(array, name, shape), name);
}

void store(const std::optional<RowsOut>& rows) {
  if (rows) rows->store();
}

void norm_backward(const Norm& norm, const ml_array* dy, const ml_array* inv_rms, const ml_array* dx,
                   const ml_array* d_gate, const ml_array* d_weight, Write mode) {
  check(norm.gate != nullptr || d_gate == nullptr, [] { return "there is a d_gate, and no gate"; });
  const RowsIn x(*norm.x, "x"), d_output(check_array(dy, "dy", shape_of(*norm.x)), "dy");
  const RowsIn weight(*norm.weight, "weight", InPlace::kFlat);
  const std::optional<RowsIn> gate = gate_of(norm);
  const Index shape[] = {norm.rows()};
  const std::optional<RowsIn> known = optional_rows(inv_rms, "inv_rms", shape);
  KeptFloats scratch(norm.rows(), norm.cols()), gate_scratch(gate ? norm.rows() : 0, norm.cols()),
      weight_scratch(1, norm.cols()), inverse(1, norm.rows());
  if (!known) norm_forward(norm, x, gate, weight.flat(), scratch.view(), inverse.view().flat());
  const std::optional<RowsOut> out = asked_for(dx, "dx", shape_of(*norm.x)),
                               gate_out = asked_for(d_gate, "d_gate", shape_of(*norm.x));
  std::optional<RowsOut> weight_out;
  if (d_weight != nullptr)
    weight_out.emplace(check_array(d_weight, "d_weight", {norm.cols()}), "d_weight", InPlace::kFp32, mode);
  const MatrixView d_numbers = weight_out ? weight_out->fp32() : weight_scratch.view();
  if (!weight_out || mode == Write::kReplace) fill(d_numbers, 0);
  const NormedRows normed{x.fp32(), weight.flat(), norm.settings,
                          known ? known->flat() : inverse.view().flat()};
  const MatrixView d_x = out ? out->fp32() : scratch.view();
  if (gate)
    fused_rmsnorm().gated_backward(normed, gate->fp32(), d_output.fp32(), d_x,
                                   gate_out ? gate_out->fp32() : gate_scratch.view(), d_numbers.flat());
  else
    fused_rmsnorm().backward(normed, d_output.fp32(), d_x, d_numbers.flat());
  store(out);
  store(gate_out);
  store(weight_out);
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;
using moeloom::Index;

ml_status ml_glu(const ml_glu_settings* settings, const ml_array* gate_up, const ml_array* row_scale,
                 const ml_array* out) {
  return guarded([&] {
    const GluShape shape(gate_up);
    const auto scale = optional_rows(row_scale, "row_scale", std::span(&shape.rows, 1));
    const RowsIn inputs(*gate_up, "gate_up");
    const RowsOut results(check_array(out, "out", {shape.rows, shape.inter}), "out", InPlace::kBf16);
    moeloom::fused_swiglu().forward(activation_of(settings), inputs.fp32(), flat(scale), results.rows());
    results.store();
  });
}

ml_status ml_glu_grad(const ml_glu_settings* settings, const ml_array* gate_up, const ml_array* row_scale,
                      const ml_array* d_out, const ml_array* d_gate_up, const ml_array* d_row_scale) {
  return guarded([&] {
    const GluShape shape(gate_up);
    const auto scale = optional_rows(row_scale, "row_scale", std::span(&shape.rows, 1));
    check((row_scale == nullptr) == (d_row_scale == nullptr),
          [] { return "row_scale and d_row_scale are both there or both NULL"; });
    const RowsIn inputs(*gate_up, "gate_up");
    const RowsIn d_results(check_array(d_out, "d_out", {shape.rows, shape.inter}), "d_out");
    const RowsOut d_inputs(check_array(d_gate_up, "d_gate_up", {shape.rows, 2 * shape.inter}), "d_gate_up",
                           InPlace::kBf16);
    KeptFloats activated(shape.rows, shape.inter), d_scale(1, scale ? shape.rows : 0);
    moeloom::fused_swiglu().backward(activation_of(settings), inputs.fp32(), flat(scale), d_results.fp32(),
                                     {d_inputs.rows(), d_scale.view().flat(), activated.view()});
    d_inputs.store();
    if (scale)
      write_floats(d_scale.view(), check_array(d_row_scale, "d_row_scale", {shape.rows}), "d_row_scale");
  });
}

ml_status ml_rmsnorm(const ml_array* x, const ml_array* gate, const ml_array* weight, float eps, float offset,
                     const ml_array* y, const ml_array* inv_rms) {
  return guarded([&] {
    const Norm norm{x, gate, weight, {eps, offset}};
    norm.check_shapes();
    const RowsIn rows(*x, "x"), factors(*weight, "weight", InPlace::kFlat);
    const RowsOut results(check_array(y, "y", shape_of(*x)), "y",
                          gate == nullptr ? InPlace::kBf16 : InPlace::kFp32);
    KeptFloats inverse(1, norm.rows());
    norm_forward(norm, rows, gate_of(norm), factors.flat(), results.rows(), inverse.view().flat());
    results.store();
    if (inv_rms != nullptr)
      write_floats(inverse.view(), check_array(inv_rms, "inv_rms", {norm.rows()}), "inv_rms");
  });
}

ml_status ml_rmsnorm_grad(const ml_array* dy, const ml_array* x, const ml_array* gate, const ml_array* weight,
                          float eps, float offset, const ml_array* inv_rms, const ml_array* dx,
                          const ml_array* d_gate, const ml_array* d_weight, int32_t mode) {
  return guarded([&] {
    const Norm norm{x, gate, weight, {eps, offset}};
    norm.check_shapes();
    norm_backward(norm, dy, inv_rms, dx, d_gate, d_weight, write_of(mode));
  });
}
