#include "decide/decide_rows.hpp"

#include "base/text.hpp"
#include "moe/dispatch/wire.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <vector>

namespace moeloom {
namespace {

/// Below it MPI's exchange of small messages is level or faster: a rank waits three times in `shared`.
constexpr Index kLeastSharedBytes = 4096;
/// The wait for the first chunk and for the last result is a share of 1 / chunks of an exchange; more chunks
/// save little of it.
constexpr Index kMostChunks = 8;
/// A message below it costs more in calls than in bytes, and leaves without help.
constexpr Index kLeastMessageBytes = 64 * 1024;
/// Products of a chunk below it are no longer than a message takes to be answered.
constexpr double kLeastChunkSeconds = 1e-3;
/// Of a step's six products of an expert, forward has two, and has to hide as many bytes as backward.
constexpr double kForwardShare = 1.0 / 3;

struct Case {
  const RunFacts& facts;
  const RunRequest& request;
  double expert_seconds;
  const AskedExchange& asked = request.exchange;

  Index ep() const { return facts.job.layout.mesh.ep; }
  /// Whether rows are asked to travel in chunks, and travel at all.
  bool in_chunks() const { return asked.chunks.value_or(0) > 0 && ep() > 1; }
  /// Of the rank that holds the fewest.
  Index experts() const { return std::max<Index>(facts.model.num_experts / ep(), 1); }
  /// Expected from one rank to another in one direction, if experts are even.
  Index bytes_per_pair(WireDType wire) const {
    return facts.job.tokens() * facts.model.num_experts_per_tok * wire_cols(facts.model.hidden_size, wire) *
           static_cast<Index>(sizeof(float)) / ep();
  }
  /// The same of what crosses nodes; by hierarchical from a rank to a node, on the way home, where more do.
  Index bytes_per_message(DispatcherKind kind) const {
    const WireDType wire = asked.wire;
    if (kind != DispatcherKind::kHierarchical || facts.ep_nodes == 1) return bytes_per_pair(wire);
    const double rows = crossings_back(facts.model.num_experts, facts.model.num_experts_per_tok,
                                       facts.ep_nodes, asked.combine) /
                        static_cast<double>(facts.ep_nodes - 1);
    return static_cast<Index>(
        rows * static_cast<double>(facts.job.tokens() * wire_cols(facts.model.hidden_size, wire) * 4));
  }
  std::string message_text(DispatcherKind kind) const {
    return std::to_string(bytes_per_message(kind)) +
           (kind == DispatcherKind::kHierarchical ? " bytes a rank and node" : " bytes a pair of ranks");
  }
  std::string ranks() const { return "the " + std::to_string(ep()) + " ranks of ep"; }
  std::string on_nodes() const {
    return ranks() + " lie on " + std::to_string(facts.ep_nodes) + (facts.ep_nodes == 1 ? " node" : " nodes");
  }
};

// ---- what can run

/// Why a way cannot serve the run, from its row of the table; none: it can.
std::optional<std::string> why_not(const DispatcherWay& way, const Case& c) {
  if (!way.crosses_nodes && c.facts.ep_nodes > 1) return c.on_nodes() + ", which share no memory";
  if (way.needs_node_memory && !c.facts.no_node_memory.empty())
    return "memory cannot be shared: " + c.facts.no_node_memory;
  return std::nullopt;
}

std::vector<DispatcherWay> able(const Case& c) {
  std::vector<DispatcherWay> ways;
  for (const DispatcherWay& way : dispatcher_ways())
    if (!why_not(way, c)) ways.push_back(way);
  return ways;
}

/// "dispatcher = alltoall or auto"
std::string way_out(const Case& c) {
  std::string kinds;
  for (const DispatcherWay& way : able(c))
    kinds += (kinds.empty() ? "" : ", ") + std::string(name_of(way.kind));
  return "dispatcher = " + kinds + " or auto";
}

/// The ways that are left by what was asked for.
std::vector<DispatcherWay> candidates(const Case& c) {
  if (c.asked.rebalance && c.ep() == 1)
    throw ConfigError(
        {"rebalance = on has no rank to move rows to: ep = 1; choose a larger ep, or "
         "rebalance = off"});
  if (c.asked.dispatcher) {
    const DispatcherWay& way = way_of(*c.asked.dispatcher);
    if (const auto reason = why_not(way, c))
      throw ConfigError({"dispatcher = " + std::string(name_of(way.kind)) + " cannot run: " + *reason +
                         "; choose " + way_out(c)});
    return {way};
  }
  return able(c);
}

/// What of the wire's settings a way has no use for.
std::vector<std::string> idle_settings(const DispatcherWay& way, const Case& c) {
  std::vector<std::string> idle;
  const bool leaves = c.facts.ep_nodes > 1;
  if (c.asked.wire == WireDType::kBf16) {
    const std::string nothing = "wire dtype = bf16 rounds nothing: ";
    if (way.rounds == OnWire::kNowhere)
      idle.push_back(nothing + "rows in the node's memory stay fp32");
    else if (c.ep() == 1)
      idle.push_back(nothing + "no row travels");
    else if (way.rounds == OnWire::kBetweenNodes && !leaves)
      idle.push_back(nothing + "no row leaves the node");
  }
  if (c.asked.combine == CombineMode::kFast && !(way.sums_before_wire && leaves))
    idle.emplace_back("combine = fast changes nothing: no sum is made before a wire");
  return idle;
}

// ---- what is fastest

/// A way, whole or in chunks, and what its exchange adds to a layer.
struct Option {
  DispatcherKind kind;
  Index chunks;
  double seconds;

  std::string text() const {
    return std::string(name_of(kind)) + (chunks > 0 ? " in " + std::to_string(chunks) + " chunks " : " ") +
           milliseconds_text(seconds);
  }
};

/// Chunks that are large enough to pay for their messages, behind products that can hide them; 0: none.
Index usual_chunks(DispatcherKind kind, const Case& c) {
  const Index by_bytes = c.bytes_per_message(kind) / kLeastMessageBytes;
  const auto by_products = static_cast<Index>(kForwardShare * c.expert_seconds / kLeastChunkSeconds);
  const Index chunks = std::min({kMostChunks, by_bytes, by_products, c.experts()});
  return chunks < 2 ? 0 : chunks;
}

/// No more than experts, whatever is asked for: chunks are made of whole ones.
Index asked_chunks(const Case& c) {
  return std::min(*c.asked.chunks, c.experts());
}

std::vector<Option> options(const std::vector<DispatcherWay>& ways, const Case& c) {
  std::vector<Option> found;
  const auto add = [&](DispatcherKind kind, Index chunks) {
    found.push_back({kind, chunks, exchange_seconds(c.facts, c.request, kind, chunks, c.expert_seconds)});
  };
  for (const DispatcherWay& way : ways) {
    if (c.in_chunks()) {
      add(way.kind, asked_chunks(c));
      continue;
    }
    add(way.kind, 0);
    if (!c.asked.chunks && usual_chunks(way.kind, c) > 0) add(way.kind, usual_chunks(way.kind, c));
  }
  return found;
}

/// Where rows leave the node: the option that the cost model predicts to add least.
Option fastest(const std::vector<Option>& all) {
  return *std::ranges::min_element(all, {}, &Option::seconds);
}

std::string prediction_text(const Option& best, const std::vector<Option>& all, const Case& c) {
  std::string others;
  for (const Option& each : all)
    if (each.kind != best.kind || each.chunks != best.chunks)
      others += (others.empty() ? "" : ", ") + each.text();
  return c.on_nodes() + ": a layer's exchange by " + best.text() + (others.empty() ? "" : ", " + others) +
         " (" + c.facts.rates_source + ")";
}

/// Inside a node: by sizes, because the processor that computes is the one that copies.
std::pair<DispatcherKind, std::string> choose_on_node(const std::vector<DispatcherWay>& ways, const Case& c) {
  const bool memory = ways.front().needs_node_memory;  // the table's order: those first
  const std::string bytes = std::to_string(c.bytes_per_pair(WireDType::kFp32)) + " bytes a pair of ranks";
  if (memory && c.bytes_per_pair(WireDType::kFp32) >= kLeastSharedBytes)
    return {ways.front().kind, c.ranks() + " share their node's memory, " + bytes};
  if (memory)
    return {DispatcherKind::kAlltoall,
            bytes + " are below " + std::to_string(kLeastSharedBytes) + ", where MPI is as fast"};
  return {DispatcherKind::kAlltoall, "memory cannot be shared: " + c.facts.no_node_memory};
}

/// Why rows of the dispatcher travel in no chunks, or in those that were asked for.
std::string overlap_reason(DispatcherKind kind, Index chunks, const Case& c) {
  if (c.asked.chunks == 0) return "overlap chunks = off";
  if (c.asked.chunks) {
    const std::string asked = "overlap chunks = " + std::to_string(*c.asked.chunks);
    if (c.ep() == 1) return asked + " hides nothing: ep = 1, and rows stay on their rank";
    if (chunks < *c.asked.chunks) return asked + ", cut to the experts of a rank: " + std::to_string(chunks);
    return asked;
  }
  if (c.ep() == 1) return "ep = 1: rows stay on their rank";
  if (c.facts.ep_nodes == 1)
    return c.ranks() + " share a node, where the processor that computes is the one that copies rows";
  const std::string sent =
      c.message_text(kind) + " beside products of " + milliseconds_text(c.expert_seconds);
  if (chunks > 0) return sent + ", sent in " + std::to_string(chunks) + " parts";
  if (usual_chunks(kind, c) > 0) return sent + ", predicted no faster in parts";
  return sent + ", too little to be sent in parts of " + std::to_string(kLeastMessageBytes) + " bytes and " +
         milliseconds_text(kLeastChunkSeconds / kForwardShare);
}

RowsDecision choose(const std::vector<DispatcherWay>& ways, const Case& c) {
  std::pair<DispatcherKind, std::string> choice;
  Index chunks = c.in_chunks() ? asked_chunks(c) : 0;
  const bool leaves = c.facts.ep_nodes > 1;
  if (leaves) {
    const std::vector<Option> all = options(ways, c);
    const Option best = fastest(all);
    choice = {best.kind, prediction_text(best, all, c)};
    chunks = best.chunks;
  } else if (c.ep() == 1) {
    choice = {DispatcherKind::kAlltoall, "ep = 1: rows stay on their rank"};
  } else if (!c.asked.dispatcher) {
    choice = choose_on_node(ways, c);
  }
  if (c.asked.dispatcher)
    choice = {*c.asked.dispatcher, "dispatcher = " + std::string(name_of(*c.asked.dispatcher))};
  const auto& [kind, reason] = choice;
  return {kind, reason, chunks, overlap_reason(kind, chunks, c)};
}

}  // namespace

RowsDecision decide_rows(const RunFacts& facts, const RunRequest& request, double expert_seconds) {
  const AskedExchange& asked = request.exchange;
  const std::string none = "this model has no experts";
  if (!facts.model.has_experts()) {
    if (asked.rebalance)
      throw ConfigError({"rebalance = on has nothing to move: " + none + "; choose rebalance = off"});
    return {DispatcherKind::kAlltoall, none, 0, none};
  }
  const Case c{facts, request, expert_seconds};
  RowsDecision rows = choose(candidates(c), c);
  for (const std::string& idle : idle_settings(way_of(rows.dispatcher), c)) {
    if (asked.dispatcher && c.ep() > 1)
      throw ConfigError({rows.why_dispatcher + ": " + idle + "; leave it out, or choose dispatcher = auto"});
    rows.why_dispatcher += "; " + idle;
  }
  return rows;
}

}  // namespace moeloom
