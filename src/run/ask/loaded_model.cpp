#include "ask/loaded_model.hpp"

#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/parts/node_halves.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/lasting_memory.hpp"

#include "summary/run_report.hpp"

namespace moeloom {
namespace {

/// Weights without gradients; those of a folder in bf16 or F16 as they are there, but not if an adapter is to
/// be merged into them.
std::vector<ParameterSpec> at_rest(const ModelConfig& config, const AskedModel& asked, ExpertRange experts) {
  std::vector<ParameterSpec> specs = parameter_specs(config, experts);
  for (ParameterSpec& spec : specs) spec.frozen = true;
  const Storage resting =
      asked.config.adapter ? Storage::kFp32 : resting_storage(SafetensorsFolder(asked.start.folder), config);
  return with_storage(std::move(specs), Storage::kFp32, resting);
}

/// Linux gives more than it has and ends the process that uses it, without a word. Collective over the world;
/// sharers: ranks of the node that keep weights in halves once.
void require_room(const std::vector<ParameterSpec>& specs, const Mesh& mesh, Index sharers, bool merges) {
  double on_node =
      lasting_memory(specs, {.layout = {.mesh = mesh.shape(), .ranks_per_node = sharers}}).lasting();
  mesh.node().all_sum(std::span(&on_node, 1));
  const auto held = static_cast<double>(memory_of_this_node());
  agree(mesh.world(), [&] {
    if (on_node <= held) return;
    throw Error("the model does not fit into memory: its weights take " + bytes_text(on_node) +
                " on a node that has " + bytes_text(held) + "; choose a larger ep on more nodes" +
                (merges ? ", or merge the adapter first (convert `merge` DIR `export-dtype` bf16): beside it "
                          "weights are fp32, without it a folder in bf16 or F16 takes half"
                        : ""));
  });
}

}  // namespace

LoadedModel::LoadedModel(const AskedModel& asked, const Mesh& mesh, const RunHost& host) : mesh_(mesh) {
  const Log log(host);
  for (const Event& warning : start_warnings(asked.start))
    if (speaks()) log.warn(warning);
  for (const Event& remark : remarks_of(asked.config))
    if (speaks()) log.info(remark);
  if (asked.config.adapter && speaks())
    if (const Index left_out = modules_left_out(asked.config); left_out > 0)
      log.warn(adapter_left_out(asked.adapter_folder(), left_out));
  RunRequest request = run_request({}, {.chunks = 0}, asked.flags);
  const Job job{.batch = {.sequences = mesh_.world().size(), .length = 1},
                .layout = {.threads = threads(), .pretended_nodes = asked.flags.pretended_nodes}};
  const RunFacts facts = find_run_facts(asked.config, mesh_, job);
  request.use = Use::kDecoding;
  decoding_ = decide_run(facts, request, mesh_.world()).table;
  request.use = Use::kScoring;
  const RunDecision decision = decide_run(facts, request, mesh_.world());
  scoring_ = decision.table;
  const Index experts = std::max<Index>(asked.config.num_experts, 1);
  dispatcher_ = open_dispatcher(decision, mesh_, asked.config.num_experts);
  ModelConfig config = asked.config;
  config.adapter.reset();  // it is merged: no token pays for it
  std::vector<ParameterSpec> specs;
  agree(mesh_.world(), [&] { specs = at_rest(config, asked, mesh_.experts(experts)); });
  const bool merges = asked.config.adapter.has_value();
  require_room(specs, mesh_, mesh_.node().size(), merges);
  const auto halves = shared_halves(mesh_.node(), specs);
  require_room(specs, mesh_, halves ? mesh_.node().size() : 1, merges);
  agree(mesh_.world(), [&] { store_.emplace(std::move(specs), StoreHomes{.halves = halves}); });
  load_model(asked.config.adapter ? asked.config.adapter->base : asked.start.folder, *store_, mesh_, config);
  if (asked.config.adapter)
    agree(mesh_.world(),
          [&] { merge_adapter(*store_, asked.adapter_folder(), asked.config, mesh_.world().board()); });
  decoder_.emplace(config, *store_, mesh_, scoring_, dispatcher_);
}

}  // namespace moeloom
