#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/generate.hpp"
#include "moeloom/train/checkpoint/checkpoint.hpp"
#include "moeloom/train/checkpoint/verify.hpp"
#include "moeloom/train/routing/routing_recorder.hpp"

#include <iostream>

#include "cli/environment.hpp"
#include "cli/option_values.hpp"
#include "cli/processors.hpp"
#include "commands/commands.hpp"
#include "run/report/run_report.hpp"
#include "run/start/run_decision.hpp"

namespace moeloom {
namespace {

constexpr Index kBytes = 256;  // the vocabulary in which an id is a byte

struct Request {
  GenerateOptions options;
  EnvironmentFlags flags;
  CheckedFolder start;
  ModelConfig config;

  bool in_ids() const { return !options.prompt_ids.empty(); }
  std::vector<std::int32_t> prompt() const;
};

std::vector<std::int32_t> Request::prompt() const {
  std::vector<std::int32_t> ids;
  for (const Index id : options.prompt_ids) ids.push_back(static_cast<std::int32_t>(id));
  if (!in_ids())
    for (const char c : options.prompt) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

void check_prompt(const Request& request, Violations& violations) {
  const Index vocabulary = request.config.vocab_size;
  if (!request.in_ids() && vocabulary != kBytes)
    violations.add("this program has no tokenizer: vocab_size = " + std::to_string(vocabulary) +
                   ", and bytes need 256; give the prompt as token ids, --prompt-ids 1,2,3, and the text "
                   "comes as ids");
  for (const Index id : request.options.prompt_ids)
    if (id < 0 || id >= vocabulary)
      violations.add("--prompt-ids holds " + std::to_string(id) + ", but ids go from 0 to " +
                     std::to_string(vocabulary - 1) + " (vocab_size = " + std::to_string(vocabulary) + ")");
}

void check(const Request& request, Index world, Violations& violations) {
  const GenerateOptions& options = request.options;
  if (options.ep >= 1)
    violations.add(mesh_violations({0, options.ep, {"dp", "ep"}}, world,
                                   request.config.has_experts() ? request.config.num_experts : 0));
  check_prompt(request, violations);
  violations.add(routing_violations({.record = options.record_routing}, request.config));
  const auto given = static_cast<Index>(request.prompt().size());
  const Index positions = request.config.max_position_embeddings;
  if (options.tokens > positions - given)
    violations.add("a prompt of " + std::to_string(given) +
                   " and tokens = " + std::to_string(options.tokens) +
                   " make more positions than max_position_embeddings = " + std::to_string(positions));
}

Request agree_on_generation(int argc, char** argv, const Communicator& world) {
  Request request;
  Violations violations;
  agree(world, [&] { request.options = parse_generate_options(argc, argv, violations); });
  const std::string model = world.all_gather_text(request.options.model.string()).front();
  try {
    if (!model.empty()) request.start = whole_checkpoint(model, world);
  } catch (const AgreedError& error) {
    violations.add(error.what());
  }
  agree(world, [&] {
    violations.attempt([&] { request.flags = read_environment(); });
    violations.attempt([&] {
      if (request.start.folder.empty()) return;
      request.config = ModelConfig::read(request.start.folder);
      check(request, world.size(), violations);
    });
    violations.throw_if_any();
  });
  return request;
}

/// As it comes: bytes as text, or ids with commas, as --prompt-ids takes them.
void say(const Request& request, std::int32_t token) {
  if (request.in_ids())
    std::cout << ',' << token << std::flush;
  else
    std::cout << printable(std::string(1, static_cast<char>(token))) << std::flush;
}

void say_prompt(const Request& request) {
  const GenerateOptions& options = request.options;
  std::cout << (request.in_ids() ? value_text(options.prompt_ids) : printable(options.prompt)) << std::flush;
}

/// Of the prompt and what is added, on the rank that has them. The last token was not routed.
class TextRecording {
 public:
  TextRecording(const Request& request, const Decoder& decoder, Index positions)
      : decoder_(decoder),
        heading_(routing_heading_of(request.config, positions, positions, request.options.seed)),
        file_(request.options.record_routing, heading_) {}

  /// The last forward had the tokens of `text` that are not known yet, or all of them anew.
  void add(const std::vector<std::int32_t>& text) {
    const auto tokens = at(decoder_.layers()[at(heading_.layers.front())].moe()->routing.tokens());
    if (tokens == text.size()) mine_.clear();
    mine_.add(decoder_, std::span(text).last(tokens));
  }
  void write() {
    file_.begin_step({0, text_hash(mine_.input_ids())});
    for (const RecordedRouting& layer : mine_.layers()) file_.add_layer(layer);
    file_.finish();
  }

 private:
  const Decoder& decoder_;
  RoutingHeading heading_;
  RoutingFileWriter file_;
  RoutingCollector mine_;
};

}  // namespace

int generate_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  const Request request = agree_on_generation(argc, argv, world);
  const GenerateOptions& options = request.options;
  const bool speaks = world.rank() == 0;
  Log log({.rank = world.rank(), .level = request.flags.log_level});
  for (const Event& warning : start_warnings(request.start))
    if (speaks) log.warn(warning);
  const MeshShape shape = MeshShape{0, options.ep, {"dp", "ep"}}.completed(world.size());
  const Mesh mesh(std::move(world), shape);
  set_threads(threads_for(options.threads, request.flags.threads, mesh.node()));
  RunFacts facts = find_run_facts(request.config, mesh, {.threads = threads(), .tokens = 1});
  const MeshOptions as_decoders_are{
      .dispatcher = DispatcherKind::kAlltoall, .node_pool = false, .overlap = 0};
  RunRequest asked = run_request({}, as_decoders_are, request.flags);
  // One row at a time: packing every expert for it would cost more than it could bring.
  if (asked.gmm == GmmRequest::kAuto || asked.gmm == GmmRequest::kMeasure) asked.gmm = GmmRequest::kNever;
  const DecidedRun run = decide_run(std::move(facts), asked, {}, request.flags, mesh.world());
  ParameterStore store(
      parameter_specs(request.config, mesh.experts(std::max<Index>(request.config.num_experts, 1))));
  load_model(request.start.folder, store, mesh, request.config);
  KernelTable kernels = run.decision.table;
  if (asked.gmm == GmmRequest::kNever) kernels.grouped_matmul = streamed_grouped_matmul();
  kernels.dense = streamed_dense();
  Decoder decoder(request.config, store, mesh, kernels);

  std::vector<std::int32_t> text = request.prompt();
  std::optional<TextRecording> recording;
  agree(mesh.world(), [&] {
    if (speaks && !options.record_routing.empty())
      recording.emplace(request, decoder, static_cast<Index>(text.size()) + options.tokens - 1);
  });
  if (speaks) say_prompt(request);
  generate(decoder, mesh, speaks ? text : std::vector<std::int32_t>{},
           {.tokens = options.tokens,
            .sampling = {.temperature = options.temperature, .top_k = options.top_k, .seed = options.seed}},
           [&](std::int32_t token) {
             if (recording) recording->add(text);
             text.push_back(token);
             say(request, token);
             return true;
           });
  if (speaks) std::cout << '\n';
  agree(mesh.world(), [&] {
    if (recording) recording->write();
  });
  return 0;
}

}  // namespace moeloom
