#include "moeloom/moe/dispatch/hierarchical_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/mesh.hpp"

#include <numeric>

#include "dispatch/count_exchange.hpp"
#include "dispatch/row_copy.hpp"
#include "dispatch/row_sum.hpp"

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 16;
constexpr Index kFloatsPerCopy = sizeof(CrossingCopy) / sizeof(float);

Index floats_of(std::span<const Parcel> parcels) {
  return parcels.empty() ? 0 : parcels.back().end();
}

std::span<float> as_floats(std::span<CrossingCopy> copies) {
  return {reinterpret_cast<float*>(copies.data()), copies.size() * kFloatsPerCopy};
}
std::span<const float> as_floats(std::span<const CrossingCopy> copies) {
  return {reinterpret_cast<const float*>(copies.data()), copies.size() * kFloatsPerCopy};
}

const HierarchicalPlan& own_of(const DispatchPlan& plan) {
  return own_of<HierarchicalPlan>(plan, "hierarchical");
}

HierarchicalSettings checked(HierarchicalSettings settings, const Communicator& ep) {
  const NodeMap& nodes = settings.nodes;
  require(std::ssize(nodes.node_of) == ep.size() && settings.memory != nullptr &&
              settings.memory->size() == std::ssize(nodes.members[at(nodes.node_of[at(ep.rank())])]),
          "the hierarchical dispatcher needs the nodes of ep and the memory of this one");
  return settings;
}

}  // namespace

HierarchicalDispatch::HierarchicalDispatch(const Communicator& ep, Index num_experts,
                                           HierarchicalSettings settings)
    : ep_(&ep),
      num_experts_(num_experts),
      settings_(checked(std::move(settings), ep)),
      routes_(crossing_routes(settings_.nodes, ep.rank())),
      node_(settings_.memory) {
  sources_.resize(at(node_.memory().size() + std::ssize(routes_.out)));
}

void HierarchicalDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, num_experts_, ep_->size(), plan);
  const NodeMap& nodes = settings_.nodes;
  // Beside its counts a rank tells those that it sends copies to how many there are.
  std::vector<std::int64_t> copies(at(ep_->size()));
  for (const Index to : routes_.out)
    copies[at(to)] = rows_for_node(nodes, nodes.node_of[at(to)], plan.sent_per_rank);
  ReceivedCounts received = exchange_counts(*ep_, plan.tokens_per_expert, plan.sent_per_rank, copies);
  LandingCounts counts{.first_rows = exchange_first_rows(*ep_, received.of_experts, num_experts_),
                       .received = std::move(received.of_experts)};
  std::vector<Index> copies_per_route;
  for (const Index from : routes_.in) copies_per_route.push_back(received.beside[at(from)]);
  plan_crossing(topk_idx, counts, copies_per_route, plan);
}

void HierarchicalDispatch::plan(std::span<const std::int32_t> topk_idx, Index top_k,
                                const SourceCounts& counts, DispatchPlan& plan) {
  plan_sending(topk_idx, top_k, counts.experts, counts.ranks, plan);
  const NodeMap& nodes = settings_.nodes;
  const Index here = nodes.node_of[at(ep_->rank())];
  std::vector<Index> copies_per_route;
  for (const Index from : routes_.in) {
    Index copies = 0;
    for (const Index holder : nodes.members[at(here)]) {
      const ExpertRange held = experts_of(counts.experts, counts.ranks, holder);
      const auto first = counts.of_source(from).begin() + held.begin;
      copies += std::reduce(first, first + held.count, Index{0});
    }
    copies_per_route.push_back(copies);
  }
  plan_crossing(topk_idx, landing_counts(counts, ep_->rank()), copies_per_route, plan);
}

void HierarchicalDispatch::plan_crossing(std::span<const std::int32_t> topk_idx, const LandingCounts& counts,
                                         std::span<const Index> copies_per_route, DispatchPlan& plan) {
  HierarchicalPlan& own = make_own<HierarchicalPlan>(plan);
  plan_landing(counts, topk_idx, ep_->rank(), plan, own.landings);
  own.chunks = {};
  plan_leaving({settings_.nodes, routes_, ep_->rank(), settings_.combine}, plan, own);
  plan_arriving(exchange_copies(own.crossing, copies_per_route), copies_per_route, own.crossing);
}

std::vector<CrossingCopy> HierarchicalDispatch::exchange_copies(const CrossingPlan& crossing,
                                                                std::span<const Index> copies_per_route) {
  std::vector<CrossingCopy> arriving(at(std::reduce(copies_per_route.begin(), copies_per_route.end())));
  Messages messages(*ep_);
  std::span<CrossingCopy> into = arriving;
  for (std::size_t route = 0; route < routes_.in.size(); ++route) {
    messages.receive(static_cast<int>(routes_.in[route]), as_floats(into.first(at(copies_per_route[route]))));
    into = into.subspan(at(copies_per_route[route]));
  }
  std::span<const CrossingCopy> from = crossing.leaving_copies;
  for (std::size_t route = 0; route < routes_.out.size(); ++route) {
    const std::size_t copies = at(crossing.leaving[route].copies);
    send(routes_.out[route], as_floats(from.first(copies)), messages);
    from = from.subspan(copies);
  }
  messages.finish();
  return arriving;
}

void HierarchicalDispatch::dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                                    std::optional<ScalarsOut> scalars) {
  const CrossingPlan& crossing = own_of(plan).crossing;
  const std::vector<Parcel> arriving =
      parcels_of(routes_.in, crossing.arriving, &CrossingCounts::tokens,
                 wire_cols(tokens.cols, settings_.wire), scalars.has_value());
  Messages messages(*ep_);
  receive_all(arriving, messages);
  send_tokens(plan, tokens, scalars, messages);
  node_.open(rows, plan.rows(), tokens.cols, scalars.has_value());
  write_own_node(plan, tokens, scalars);
  while (const std::optional<Index> route = messages.next_arrival())
    hand_out(plan, arriving[at(*route)], tokens.cols);
  messages.finish();
  node_.close(scalars);
}

void HierarchicalDispatch::combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens,
                                   Write mode, std::optional<ScalarsBack> scalars) {
  const CrossingPlan& crossing = own_of(plan).crossing;
  const std::vector<Parcel> arriving =
      parcels_of(routes_.out, crossing.leaving, &CrossingCounts::sums, wire_cols(rows.cols(), settings_.wire),
                 scalars.has_value());
  Messages messages(*ep_);
  receive_all(arriving, messages);
  node_.show(rows, scalars);
  send_sums(crossing, rows.cols(), scalars.has_value(), messages);
  locate_sources(arriving, rows.cols());
  receive_sums(arriving, rows.cols(), messages);
  sum_tokens(plan, rows.cols(), tokens, mode);
  if (scalars) take_scalars(plan, arriving, *scalars);
  messages.finish();
}

void HierarchicalDispatch::receive_all(std::span<const Parcel> parcels, Messages& messages) {
  arriving_.reshape_uninitialised(floats_of(parcels), 1);
  for (const Parcel& parcel : parcels)
    messages.receive(static_cast<int>(parcel.peer), parcel.of(arriving_.view().flat()));
}

void HierarchicalDispatch::send(Index to, std::span<const float> values, Messages& messages) {
  network_bytes_ += static_cast<Index>(values.size_bytes());
  messages.send(static_cast<int>(to), values);
}

void HierarchicalDispatch::send_tokens(const DispatchPlan& plan, ConstMatrixView tokens,
                                       const std::optional<ScalarsOut>& scalars, Messages& messages) {
  const CrossingPlan& crossing = own_of(plan).crossing;
  const std::vector<Parcel> leaving = parcels_of(routes_.out, crossing.leaving, &CrossingCounts::tokens,
                                                 wire_cols(tokens.cols, settings_.wire), scalars.has_value());
  leaving_.reshape_uninitialised(floats_of(leaving), 1);
  for (const Parcel& parcel : leaving) {
    const std::span<float> message = parcel.of(leaving_.view().flat());
    parallel_blocks(parcel.rows, kRowsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        to_wire(tokens.row(crossing.tokens[at(parcel.first_row + i)]), tokens.cols, settings_.wire,
                parcel.row(message, i));
    });
    for (Index copy = 0; copy < parcel.scalars; ++copy)
      parcel.scalar(message, copy) = scalars->slots[at(crossing.slots[at(parcel.first_copy + copy)])];
    send(parcel.peer, message, messages);
  }
}

void HierarchicalDispatch::write_own_node(const DispatchPlan& plan, ConstMatrixView tokens,
                                          const std::optional<ScalarsOut>& scalars) const {
  const NodeMap& nodes = settings_.nodes;
  const std::vector<Landing>& landings = own_of(plan).landings;
  const RowWriter write(plan.places(), tokens.cols);
  parallel_blocks(plan.tokens, kRowsPerTask, [&](Index begin, Index end) {
    for (Index slot = begin * plan.top_k; slot < end * plan.top_k; ++slot) {
      const Landing& to = landings[at(slot)];
      if (!to.exists() || !nodes.same_node(to.rank, ep_->rank())) continue;
      const Index member = nodes.member_of[at(to.rank)];
      write(tokens.row(slot / plan.top_k), node_.rows_of(member) + to.row * tokens.cols);
      if (scalars) node_.scalars_of(member)[to.row] = scalars->slots[at(slot)];
    }
    write.finish();
  });
}

void HierarchicalDispatch::hand_out(const DispatchPlan& plan, const Parcel& parcel, Index cols) {
  const CrossingPlan& crossing = own_of(plan).crossing;
  const std::span<float> message = parcel.of(arriving_.view().flat());
  const RowWriter write(std::ssize(crossing.copies), cols);
  scratch_.reshape_uninitialised(threads(), cols);
  parallel_blocks(parcel.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float* row = parcel.row(message, i);
      if (settings_.wire != WireDType::kFp32) {
        from_wire(row, cols, settings_.wire, scratch_.row(thread_index()));
        row = scratch_.row(thread_index());
      }
      for (const CrossingCopy& to : crossing.copies_of_token(parcel.first_row + i))
        write(row, node_.rows_of(to.member) + to.row * cols);
    }
    write.finish();
  });
  for (Index copy = 0; copy < parcel.scalars; ++copy) {
    const CrossingCopy& to = crossing.copies[at(parcel.first_copy + copy)];
    node_.scalars_of(to.member)[to.row] = parcel.scalar(message, copy);
  }
}

void HierarchicalDispatch::send_sums(const CrossingPlan& crossing, Index cols, bool with_scalars,
                                     Messages& messages) {
  const std::vector<Parcel> leaving = parcels_of(routes_.in, crossing.arriving, &CrossingCounts::sums,
                                                 wire_cols(cols, settings_.wire), with_scalars);
  leaving_.reshape_uninitialised(floats_of(leaving), 1);
  scratch_.reshape_uninitialised(threads(), cols);
  for (const Parcel& parcel : leaving) {
    const std::span<float> message = parcel.of(leaving_.view().flat());
    parallel_blocks(parcel.rows, kRowsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        sum_copies(crossing, parcel.first_row + i, cols, parcel.row(message, i));
    });
    for (Index copy = 0; copy < parcel.scalars; ++copy) {
      const CrossingCopy& from = crossing.copies[at(parcel.first_copy + copy)];
      parcel.scalar(message, copy) = node_.scalars_of(from.member)[from.row];
    }
    send(parcel.peer, message, messages);
  }
}

void HierarchicalDispatch::sum_copies(const CrossingPlan& crossing, Index sum, Index cols, float* wire) {
  const std::span<const CrossingCopy> copies = crossing.copies_of_sum(sum);
  const auto row_of = [&](Index k) -> const float* {
    return node_.rows_of(copies[at(k)].member) + copies[at(k)].row * cols;
  };
  if (settings_.wire == WireDType::kFp32)
    return sum_rows(std::ssize(copies), cols, row_of, wire, Write::kReplace);
  float* row = scratch_.row(thread_index());
  sum_rows(std::ssize(copies), cols, row_of, row, Write::kReplace);
  to_wire(row, cols, settings_.wire, wire);
}

void HierarchicalDispatch::locate_sources(std::span<const Parcel> arriving, Index cols) {
  const Index members = node_.memory().size();
  for (Index member = 0; member < members; ++member) sources_[at(member)] = node_.rows_of(member);
  const bool widen = settings_.wire != WireDType::kFp32 && !arriving.empty();
  if (widen) widened_.reshape_uninitialised(arriving.back().first_row + arriving.back().rows, cols);
  for (std::size_t route = 0; route < arriving.size(); ++route)
    sources_[at(members) + route] =
        widen ? widened_.row(arriving[route].first_row) : arriving[route].of(arriving_.view().flat()).data();
}

void HierarchicalDispatch::receive_sums(std::span<const Parcel> arriving, Index cols, Messages& messages) {
  while (const std::optional<Index> route = messages.next_arrival()) {
    if (settings_.wire == WireDType::kFp32) continue;
    const Parcel& parcel = arriving[at(*route)];
    const std::span<float> message = parcel.of(arriving_.view().flat());
    parallel_blocks(parcel.rows, kRowsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        from_wire(parcel.row(message, i), cols, settings_.wire, widened_.row(parcel.first_row + i));
    });
  }
}

void HierarchicalDispatch::sum_tokens(const DispatchPlan& plan, Index cols, MatrixView tokens,
                                      Write mode) const {
  const CrossingPlan& crossing = own_of(plan).crossing;
  parallel_blocks(plan.tokens, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const Index first = crossing.summand_offsets[at(t)];
      const auto row_of = [&](Index k) {
        const Summand& summand = crossing.summands[at(first + k)];
        return sources_[at(summand.source)] + summand.row * cols;
      };
      sum_rows(crossing.summand_offsets[at(t + 1)] - first, cols, row_of, tokens.row(t), mode);
    }
  });
}

void HierarchicalDispatch::take_scalars(const DispatchPlan& plan, std::span<const Parcel> arriving,
                                        ScalarsBack scalars) const {
  const NodeMap& nodes = settings_.nodes;
  const auto& [landings, crossing, _] = own_of(plan);
  scalars.slots.resize(at(plan.slots()));
  for (Index slot = 0; slot < plan.slots(); ++slot) {
    const Landing& from = landings[at(slot)];
    if (!from.exists())
      scalars.slots[at(slot)] = 0;
    else if (nodes.same_node(from.rank, ep_->rank()))
      scalars.slots[at(slot)] = node_.scalars_of(nodes.member_of[at(from.rank)])[from.row];
  }
  for (const Parcel& parcel : arriving) {
    const std::span<const float> message = parcel.of(arriving_.view().flat());
    for (Index copy = 0; copy < parcel.scalars; ++copy)
      scalars.slots[at(crossing.slots[at(parcel.first_copy + copy)])] = parcel.scalar(message, copy);
  }
}

}  // namespace moeloom
