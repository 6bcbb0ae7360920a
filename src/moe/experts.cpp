#include "moeloom/moe/experts.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

void PackedExperts::refresh(const GroupedMatmulKernel& kernel, const ExpertShard& shard,
                            std::uint64_t version) {
  if (!kernel.uses_packed) return release();
  if (version == version_ && kernel.element == gate_up_.element()) return;
  gate_up_.pack(shard.gate_up_weights(), kernel.element);
  down_.pack(shard.down_weights(), kernel.element);
  version_ = version;
}

void PackedExperts::release() {
  if (version_ != 0) *this = PackedExperts();
}

namespace {

Rows gradient_rows(DType element, ExpertActivations& saved, ExpertWorkspace& workspace) {
  const MatrixView z = saved.gate_up;
  return element == DType::kF32 ? Rows(z)
                                : workspace.d_gate_up.reshape_uninitialised(element, z.rows, z.cols);
}

}  // namespace

void experts_forward(const KernelTable& kernels, const ExpertShard& shard, const PackedExperts& packed,
                     const GroupedRows& rows, ExpertActivations& saved, ExpertWorkspace& workspace,
                     PhaseClock& clock) {
  const GroupedWeights gate_up = shard.gate_up_weights();
  const GroupedWeights down = shard.down_weights();
  const Index total = saved.rows.rows();
  require(total == rows.total(), "the experts need as many rows as were planned");
  saved.gate_up.reshape_uninitialised(total, gate_up.out());
  const Rows activated =
      workspace.activated.reshape_uninitialised(kernels.grouped_matmul.element, total, down.in());
  workspace.output.reshape_uninitialised(total, down.out());
  clock.product("gate_up", total, [&] {
    kernels.grouped_matmul.forward(gate_up, packed.gate_up(), saved.rows.view(), rows, saved.gate_up);
  });
  kernels.swiglu.forward(shard.activation, saved.gate_up, saved.weights, activated);
  clock.product("down", total, [&] {
    kernels.grouped_matmul.forward(down, packed.down(), activated, rows, workspace.output);
  });
}

void experts_backward(const KernelTable& kernels, const ExpertShard& shard, const PackedExperts& packed,
                      const GroupedRows& rows, ConstMatrixView d_rows, ExpertActivations& saved,
                      ExpertWorkspace& workspace, Write gradients, PhaseClock& clock) {
  const GroupedWeights gate_up = shard.gate_up_weights();
  const GroupedWeights down = shard.down_weights();
  const Index total = saved.rows.rows();
  require(total == rows.total() && d_rows.rows == total,
          "the experts' backward needs the rows of the forward");
  workspace.d_activated.reshape_uninitialised(total, down.in());
  const DType element = kernels.grouped_matmul.element;
  const Rows activated = workspace.activated.reshape_uninitialised(element, total, down.in());
  const Rows d_gate_up = gradient_rows(element, saved, workspace);
  workspace.output.reshape_uninitialised(total, gate_up.in());
  workspace.d_weights.resize(saved.weights.size());
  clock.product("down input_grad", total, [&] {
    kernels.grouped_matmul.input_grad(down, packed.down(), d_rows, rows, workspace.d_activated);
  });
  kernels.swiglu.backward(shard.activation, saved.gate_up, saved.weights, workspace.d_activated, d_gate_up,
                          workspace.d_weights, activated);
  if (shard.d_down.rows > 0)
    clock.product("down weight_grad", total, [&] {
      kernels.grouped_matmul.weight_grad(d_rows, activated, rows, shard.d_down, gradients);
    });
  clock.product("gate_up input_grad", total, [&] {
    kernels.grouped_matmul.input_grad(gate_up, packed.gate_up(), d_gate_up, rows, workspace.output);
  });
  if (shard.d_gate_up.rows > 0)
    clock.product("gate_up weight_grad", total, [&] {
      kernels.grouped_matmul.weight_grad(d_gate_up, saved.rows.view(), rows, shard.d_gate_up, gradients);
    });
}

}  // namespace moeloom
