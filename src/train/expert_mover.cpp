#include "moeloom/train/expert_mover.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/comm/messages.hpp"
#include "moeloom/comm/node_map.hpp"
#include "moeloom/model/decoder.hpp"
#include "moeloom/model/hf/parameter_specs.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace moeloom {
namespace {

/// The nodes of world rank 0's ep row: experts lie down whole columns, so all rows decide by one.
std::vector<Index> nodes_of(const Mesh& mesh, Index pretended) {
  std::vector<Index> nodes = find_nodes(mesh.ep(), pretended).node_of;
  mesh.world().broadcast(std::as_writable_bytes(std::span(nodes)), 0);
  return nodes;
}

void copy_bytes(const StoredRows& from, const StoredRows& to) {
  for (std::size_t half = 0; half < from.bytes().size(); ++half)
    std::ranges::copy(from.bytes()[half], to.bytes()[half].begin());
}

}  // namespace

ExpertMover::ExpertMover(Decoder& decoder, ParameterStore& store, ShardedOptimizer& optimizer,
                         const Mesh& mesh, ReplaceSettings settings)
    : decoder_(decoder), store_(store), optimizer_(optimizer), mesh_(mesh), settings_(settings) {
  const ModelConfig& config = decoder.config();
  if (settings.every == 0 || !config.has_experts()) return;
  require(config.num_experts % mesh.shape().ep == 0,
          "experts can change ranks where ep divides their number");
  ranks_ = {.ranks = mesh.shape().ep,
            .node_of = nodes_of(mesh, settings.pretended_nodes),
            .pooled_by_node = settings.pooled_by_node};
  whole_ = parameter_specs(config, {0, config.num_experts});
  loads_.resize(decoder.layers().size());
}

std::optional<ReplaceReport> ExpertMover::after_step(const std::vector<std::vector<Index>>& rows_per_expert) {
  if (loads_.empty()) return std::nullopt;
  for (std::size_t layer = 0; layer < rows_per_expert.size(); ++layer) {
    auto& [first, second] = loads_[layer];
    auto& half = 2 * counted_ < settings_.every ? first : second;
    first.resize(rows_per_expert[layer].size());
    second.resize(rows_per_expert[layer].size());
    for (std::size_t expert = 0; expert < half.size(); ++expert)
      half[expert] += rows_per_expert[layer][expert];
  }
  if (++counted_ < settings_.every) return std::nullopt;
  const ReplaceReport report = decide_and_move();
  loads_.assign(loads_.size(), {});
  counted_ = 0;
  return report;
}

ReplaceReport ExpertMover::decide_and_move() {
  store_.require_whole();
  const auto sent = [&] {
    return mesh_.world().traffic().message_bytes + mesh_.ep().traffic().message_bytes;
  };
  const std::int64_t sent_before = sent();
  const auto start = std::chrono::steady_clock::now();
  ReplaceReport report;
  for (Index layer = 0; layer < std::ssize(loads_); ++layer) {
    const ExpertSeats* const before = decoder_.layers()[at(layer)].seats();
    if (before == nullptr) continue;
    const SeatPlan plan = plan_seats(loads_[at(layer)], *before, ranks_, settings_.rates, mesh_.shape().dp);
    ++report.verdicts[static_cast<std::size_t>(plan.verdict)];
    ++report.layers;
    report.load_before += plan.load_before;
    report.load_after += plan.moves() ? plan.load_after : plan.load_before;
    if (!plan.moves()) continue;
    report.moved += plan.moved;
    report.saved += plan.saved;
    report.moving += plan.moving;
    move_layer(layer, plan.seats);
  }
  if (report.layers > 0) {
    report.load_before /= static_cast<double>(report.layers);
    report.load_after /= static_cast<double>(report.layers);
  }
  report.bytes = sent() - sent_before;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void ExpertMover::move_layer(Index layer, const ExpertSeats& seats) {
  const std::vector<SeatMove> moves = moves_between(*decoder_.layers()[at(layer)].seats(), seats);
  optimizer_.move_experts(layer, moves);
  const ExpertRange held = mesh_.experts(seats.count());
  for (Index p = 0; p < std::ssize(store_.parameters()); ++p) {
    const ParameterSpec& spec = store_.parameters()[at(p)].spec;
    if (spec.layer != layer || spec.placement != Placement::kExperts) continue;
    move_weights(p, moves);
    store_.hold_experts(p, seats.experts_at(held), whole_[at(p)]);
  }
  decoder_.take_seats(layer, seats);
  store_.mark_changed();
}

/// Along ep, in each row of the mesh by itself.
void ExpertMover::move_weights(Index parameter, std::span<const SeatMove> moves) {
  const Parameter& moved = store_.parameters()[at(parameter)];
  const Index seats = moved.spec.groups, rows = moved.spec.rows / seats;
  const auto weights_at = [&](Index seat) { return moved.stored().rows_from(seat % seats * rows, rows); };
  const Index me = mesh_.ep().rank();
  // A place that is left is taken by what arrives; halves travel as floats, through memory of their own.
  std::vector<std::pair<Index, Matrix>> leaving;
  std::vector<std::pair<StoredRows, Matrix>> arriving;
  Messages messages(mesh_.ep());
  for (const auto& [expert, from, to] : moves) {
    if (from / seats != me) continue;
    const StoredRows weights = weights_at(from);
    Matrix& copy = leaving.emplace_back(to / seats, Matrix::uninitialised(1, weights.words())).second;
    copy_bytes(weights, weights.copy_in(copy.row(0)));
  }
  for (const auto& [expert, from, to] : moves) {
    if (to / seats != me) continue;
    const StoredRows place = weights_at(to);
    const bool in_place = place.storage() == Storage::kFp32;
    if (!in_place) arriving.emplace_back(place, Matrix::uninitialised(1, place.words()));
    const std::span<float> received =
        in_place ? std::span(place.values(), at(place.size())) : arriving.back().second.view().flat();
    messages.receive(static_cast<int>(from / seats), received);
  }
  for (auto& [to, copy] : leaving) messages.send(static_cast<int>(to), copy.view().flat());
  messages.finish();
  for (auto& [place, copy] : arriving) copy_bytes(place.copy_in(copy.row(0)), place);
}

}  // namespace moeloom
