#include "moeloom/moe/dispatcher.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

void check_scalars(const DispatchPlan& plan, const std::optional<ScalarsOut>& scalars) {
  require(!scalars || std::ssize(scalars->slots) == plan.slots(), "dispatch needs one number a slot");
}
void check_scalars(const DispatchPlan& plan, const std::optional<ScalarsBack>& scalars) {
  require(!scalars || std::ssize(scalars->rows) == plan.rows(), "combine needs one number a row");
}

std::variant<AlltoallDispatch, SharedDispatch> way_of(const Communicator& ep, Index num_experts,
                                                      const DispatcherSettings& settings) {
  require(settings.kind != DispatcherKind::kAuto, "a dispatcher is decided before it is made");
  if (settings.kind == DispatcherKind::kShared) return SharedDispatch(ep, num_experts, settings.memory);
  return AlltoallDispatch(ep, num_experts);
}

}  // namespace

DispatcherSettings open_dispatcher(DispatcherKind kind, const Communicator& ep, Index num_experts) {
  if (kind != DispatcherKind::kShared) return {.kind = kind};
  return {.kind = kind,
          .memory = std::make_shared<NodeMemory>(ep, SharedDispatch::mailbox_bytes(num_experts))};
}

Dispatcher::Dispatcher(const Communicator& ep, Index num_experts, const DispatcherSettings& settings)
    : way_(way_of(ep, num_experts, settings)) {}

DispatcherKind Dispatcher::kind() const {
  return std::holds_alternative<SharedDispatch>(way_) ? DispatcherKind::kShared : DispatcherKind::kAlltoall;
}

void Dispatcher::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  std::visit([&](auto& way) { way.plan(topk_idx, top_k, plan); }, way_);
}

void Dispatcher::prepare(RowBuffer& rows, Index count, Index cols) {
  std::visit([&](auto& way) { way.prepare(rows, count, cols); }, way_);
}

void Dispatcher::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                          std::optional<ScalarsOut> scalars) {
  require(tokens.rows == plan.tokens, "dispatch needs the plan's tokens");
  check_scalars(plan, scalars);
  std::visit([&](auto& way) { way.dispatch(plan, tokens, rows, scalars); }, way_);
}

void Dispatcher::combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
                         std::optional<ScalarsBack> scalars) {
  require(rows.rows() == plan.rows(), "combine needs the plan's rows");
  require(tokens.rows == plan.tokens && tokens.cols == rows.cols(), "combine fills the plan's tokens");
  check_scalars(plan, scalars);
  std::visit([&](auto& way) { way.combine(plan, rows, tokens, mode, scalars); }, way_);
}

}  // namespace moeloom
