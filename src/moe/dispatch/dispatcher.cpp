#include "moeloom/moe/dispatch/dispatcher.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

void check_tokens(const DispatchPlan& plan, ConstMatrixView tokens) {
  require(tokens.rows == plan.tokens, "dispatch needs the plan's tokens");
}
void check_sums(const DispatchPlan& plan, ConstMatrixView sums, Index cols) {
  require(sums.rows == plan.tokens && sums.cols == cols, "combine fills the plan's tokens");
}
void check_scalars(const DispatchPlan& plan, const std::optional<ScalarsOut>& scalars) {
  require(!scalars || std::ssize(scalars->slots) == plan.slots(), "dispatch needs one number a slot");
}
void check_scalars(const DispatchPlan& plan, const std::optional<ScalarsBack>& scalars) {
  require(!scalars || std::ssize(scalars->rows) == plan.rows(), "combine needs one number a row");
}

std::shared_ptr<NodeMemory> memory_of_node(const Communicator& ep, const NodeMap& nodes) {
  const Communicator node = ep.split(static_cast<int>(nodes.node_of[at(ep.rank())]), ep.rank());
  std::shared_ptr<NodeMemory> memory;
  // A node fails as a whole and by itself, so that those which did not must hear of it.
  agree(ep, [&] { memory = std::make_shared<NodeMemory>(node, NodeRows::mailbox_bytes()); });
  return memory;
}

}  // namespace

DispatcherSettings open_dispatcher(DispatcherKind kind, const Communicator& ep, Index num_experts,
                                   const WireSettings& wire) {
  DispatcherSettings settings{.kind = kind, .nodes = find_nodes(ep, wire.pretended_nodes), .wire = wire};
  if (kind == DispatcherKind::kShared)
    settings.memory = std::make_shared<NodeMemory>(ep, SharedDispatch::mailbox_bytes(num_experts));
  if (kind == DispatcherKind::kHierarchical) settings.memory = memory_of_node(ep, settings.nodes);
  return settings;
}

Dispatcher::Dispatcher(const Communicator& ep, Index num_experts, const DispatcherSettings& settings)
    : way_(AlltoallDispatch(ep, num_experts, settings.nodes, settings.wire.dtype)) {
  require(settings.chunks == 0 || settings.kind == DispatcherKind::kAlltoall,
          "only the alltoall dispatcher moves rows in chunks");
  switch (settings.kind) {
    case DispatcherKind::kAlltoall:
      if (settings.chunks > 0)
        way_ = OverlappedDispatch(ep, num_experts, settings.chunks, settings.nodes, settings.wire.dtype);
      return;
    case DispatcherKind::kShared:
      way_ = SharedDispatch(ep, num_experts, settings.memory);
      return;
    case DispatcherKind::kHierarchical:
      way_ = HierarchicalDispatch(
          ep, num_experts, {settings.nodes, settings.memory, settings.wire.combine, settings.wire.dtype});
      return;
    case DispatcherKind::kAllgather:
      way_ = AllgatherDispatch(ep, num_experts, settings.nodes, settings.wire.dtype);
      return;
  }
}

DispatcherKind Dispatcher::kind() const {
  // In the order of the variant.
  constexpr std::array kinds = {DispatcherKind::kAlltoall, DispatcherKind::kShared,
                                DispatcherKind::kHierarchical, DispatcherKind::kAllgather,
                                DispatcherKind::kAlltoall};
  static_assert(kinds.size() == std::variant_size_v<decltype(way_)>);
  return kinds[way_.index()];
}

DispatchTraffic Dispatcher::traffic() const {
  return std::visit([](const auto& way) { return way.traffic(); }, way_);
}

void Dispatcher::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  std::visit([&](auto& way) { way.plan(topk_idx, top_k, plan); }, way_);
}

void Dispatcher::prepare(RowBuffer& rows, Index count, Index cols) {
  std::visit([&](auto& way) { way.prepare(rows, count, cols); }, way_);
}

void Dispatcher::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                          std::optional<ScalarsOut> scalars) {
  check_tokens(plan, tokens);
  check_scalars(plan, scalars);
  std::visit([&](auto& way) { way.dispatch(plan, tokens, rows, scalars); }, way_);
}

void Dispatcher::combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
                         std::optional<ScalarsBack> scalars) {
  require(rows.rows() == plan.rows(), "combine needs the plan's rows");
  check_sums(plan, tokens, rows.cols());
  check_scalars(plan, scalars);
  std::visit([&](auto& way) { way.combine(plan, rows, tokens, mode, scalars); }, way_);
}

Index Dispatcher::chunks() const {
  const auto* const overlapped = std::get_if<OverlappedDispatch>(&way_);
  return overlapped != nullptr ? overlapped->chunks() : 1;
}

void Dispatcher::begin(const RoundTrip& trip) {
  auto* const overlapped = std::get_if<OverlappedDispatch>(&way_);
  if (overlapped == nullptr) {
    dispatch(trip.plan, trip.tokens, trip.rows, trip.scalars_out);
    return prepare(trip.results, trip.plan.rows(), trip.tokens.cols);
  }
  check_tokens(trip.plan, trip.tokens);
  check_scalars(trip.plan, trip.scalars_out);
  check_sums(trip.plan, trip.sums, trip.tokens.cols);
  overlapped->begin(trip);
}

bool Dispatcher::arrived(Index chunk) {
  auto* const overlapped = std::get_if<OverlappedDispatch>(&way_);
  return overlapped == nullptr || overlapped->arrived(chunk);
}

void Dispatcher::await(const RoundTrip& trip, Index chunk) {
  if (auto* const overlapped = std::get_if<OverlappedDispatch>(&way_)) overlapped->await(trip, chunk);
}

void Dispatcher::send_back(const RoundTrip& trip, Index chunk) {
  if (auto* const overlapped = std::get_if<OverlappedDispatch>(&way_)) {
    check_scalars(trip.plan, trip.scalars_back);
    overlapped->send_back(trip, chunk);
  }
}

void Dispatcher::finish(const RoundTrip& trip) {
  if (auto* const overlapped = std::get_if<OverlappedDispatch>(&way_)) return overlapped->finish(trip);
  combine(trip.plan, trip.results, trip.sums, trip.mode, trip.scalars_back);
}

Interlude Dispatcher::progress() const {
  const auto* const overlapped = std::get_if<OverlappedDispatch>(&way_);
  return overlapped != nullptr ? overlapped->progress() : Interlude();
}

}  // namespace moeloom
