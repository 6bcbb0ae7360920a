// How ranks form a mesh, and how rows, gradients and weights travel between them: rows of train.
#include "plan/decide/decide.hpp"

#include "fields/network_text.hpp"
#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {
namespace {

std::vector<std::string> read_order(const std::string& text) {
  try {
    return parse_mesh_order(text);
  } catch (const ConfigError& error) {
    throw BadValue(error.what());
  }
}

/// auto, off, or how many chunks.
std::optional<Index> read_overlap(const std::string& text) {
  if (text == "off") return 0;
  const auto chunks = value_from<std::optional<Index>>(text);
  if (chunks && *chunks < 1) throw BadValue("valid: auto, off, or a number of chunks from 1");
  return chunks;
}

std::string overlap_text(const std::optional<Index>& overlap) {
  return overlap == 0 ? "off" : value_text(overlap);
}

NetworkOptions read_network_or_auto(const std::string& text) {
  return text == "auto" ? NetworkOptions{} : read_network(text);
}

std::string network_or_auto(const NetworkOptions& network) {
  return network.bytes_per_second > 0 ? network_text(network) : "auto";
}

void add_dispatcher_options(OptionTable& table, AskedExchange& exchange) {
  std::vector<std::pair<std::string, std::optional<DispatcherKind>>> dispatchers;
  for (const auto& kind : dispatcher_requests()) dispatchers.emplace_back(name_of(kind), kind);
  table
      .add_choice("dispatcher", "how rows travel between the ranks of ep; auto: the fastest that can run",
                  "Megatron-LM's `moe-token-dispatcher-type`; none is the fastest on every cluster",
                  exchange.dispatcher, dispatchers)
      .called("dispatcher");
  table
      .add_choice<CombineMode>("combine",
                               "exact: sums in slot order, the same bits for every dispatcher; fast: "
                               "hierarchical sums on each node before the wire",
                               "sums on the node send less, and cost the same bits everywhere",
                               exchange.combine,
                               {{"exact", CombineMode::kExact}, {"fast", CombineMode::kFast}})
      .called("combine");
  table
      .add_choice<WireDType>("wire-dtype",
                             "of rows between ranks, or with hierarchical between nodes; sums stay fp32",
                             "half the bytes where the network is what a step waits for", exchange.wire,
                             {{"fp32", WireDType::kFp32}, {"bf16", WireDType::kBf16}})
      .called("wire dtype");
}

void add_uneven_options(OptionTable& table, AskedExchange& exchange) {
  table
      .add("rebalance", "BOOL",
           "experts with many rows get replicas on other ranks for a micro-batch, where moving weights costs "
           "less than the rows save; the losses stay the same, bit for bit",
           "EPLB of DeepSeek, by the micro-batch: one hot expert needs replicas", exchange.rebalance)
      .called("rebalance");
}

void add_overlap_options(OptionTable& table, AskedExchange& exchange) {
  const std::vector<std::pair<std::string, std::optional<bool>>> switches = {
      {"auto", std::nullopt}, {"on", true}, {"off", false}};
  table
      .add("overlap", "auto|off|N",
           "experts compute in N chunks while rows travel, with the same bits; auto: where rows leave the "
           "node",
           "DeepEP's and FlowMoE's chunks; within a node they cost more than they hide", exchange.chunks,
           read_overlap, overlap_text)
      .called("overlap chunks");
  table
      .add_choice(
          "overlap-grad-reduce",
          "a layer's gradients are summed over ranks while backward goes on, with the same bits; auto: "
          "between nodes",
          "Megatron-LM's option of this name", exchange.overlap_reduce, switches)
      .called("overlap grad reduce");
  table
      .add_choice("overlap-param-gather",
                  "new weights come to each rank while the next forward goes on, with the same bits; auto: "
                  "between nodes",
                  "Megatron-LM's option of this name", exchange.overlap_gather, switches)
      .called("overlap param gather");
}

}  // namespace

void add_mesh_options(OptionTable& table, MeshOptions& mesh) {
  table.group("Mesh and kernels");
  table.add("dp", "N", "data-parallel groups; 0: ranks / ep",
            "a script that says both is told where ranks are missing", mesh.dp);
  table.add("ep", "N", "ranks that share the experts of a layer",
            "Megatron-LM's `expert-model-parallel-size`: the reason for this program", mesh.ep);
  table.add("mesh-order", "LIST", "axes from slowest to fastest over ranks: dp,ep or ep,dp",
            "which of the two stays on a node", mesh.order, read_order,
            [](const auto& order) { return joined(order, ","); });
  add_dispatcher_options(table, mesh.exchange);
  add_uneven_options(table, mesh.exchange);
  add_overlap_options(table, mesh.exchange);
  table.add("net", "BANDWIDTH,LATENCY",
            "between nodes, for the choice of dispatcher, chunks and replicas: 200Gbit,2us; "
            "auto: 10Gbit,30us",
            "what a choice costs goes by the network, which is not measured before a run", mesh.network,
            read_network_or_auto, network_or_auto);
}

MeshShape mesh_shape(const MeshOptions& options, Index world) {
  return MeshShape{options.dp, options.ep, options.order}.completed(world);
}

}  // namespace moeloom
