#include "moeloom/app/commands.hpp"
#include "moeloom/app/environment.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/generate.hpp"
#include "moeloom/train/checkpoint.hpp"

#include <iostream>

#include "kernel_plan.hpp"
#include "processors.hpp"
#include "run_report.hpp"

namespace moeloom {
namespace {

struct Request {
  GenerateOptions options;
  EnvironmentFlags flags;
  std::filesystem::path folder;
  ModelConfig config;
};

void check(const Request& request, Index world) {
  const GenerateOptions& options = request.options;
  std::vector<std::string> violations = mesh_violations(
      {0, options.ep, {"dp", "ep"}}, world, request.config.has_experts() ? request.config.num_experts : 0);
  if (request.config.vocab_size < 256)
    violations.push_back("vocab_size = " + std::to_string(request.config.vocab_size) +
                         ": the prompt is given as bytes, which needs at least 256 token ids");
  if (options.prompt.empty()) violations.emplace_back("--prompt must hold at least one character");
  if (options.tokens < 1)
    violations.push_back("tokens = " + std::to_string(options.tokens) + " must be at least 1");
  const Index length = static_cast<Index>(options.prompt.size()) + options.tokens;
  if (length > request.config.max_position_embeddings)
    violations.push_back("prompt and tokens make " + std::to_string(length) +
                         " positions, but max_position_embeddings = " +
                         std::to_string(request.config.max_position_embeddings));
  if (!violations.empty()) throw ConfigError(violations);
}

Request agree_on_generation(int argc, char** argv, const Communicator& world) {
  Request request;
  agree(world, [&] {
    request.options = parse_generate_options(argc, argv);
    if (request.options.help) return;
    request.flags = read_environment();
    request.folder = resolve_checkpoint(request.options.model);
    request.config = ModelConfig::read(request.folder);
    check(request, world.size());
  });
  return request;
}

}  // namespace

int generate_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  const Request request = agree_on_generation(argc, argv, world);
  const GenerateOptions& options = request.options;
  const bool speaks = world.rank() == 0;
  if (options.help) {
    if (speaks) std::cout << generate_help();
    return 0;
  }
  const MeshShape shape = MeshShape{0, options.ep, {"dp", "ep"}}.completed(world.size());
  const Mesh mesh(std::move(world), shape);
  set_threads(threads_for(options.threads, request.flags.threads, mesh.node()));
  // One row at a time: packing every expert for it would cost more than it could bring.
  const KernelWork one_row{
      .tokens = 1, .uses_per_packing = 1, .recorded = GmmDecision{false, "one row at a time"}};
  const KernelPlan kernels =
      plan_kernels({}, request.flags, request.config, mesh.shape(), one_row, mesh.world());
  ParameterStore store(
      parameter_specs(request.config, experts_of(std::max<Index>(request.config.num_experts, 1), shape.ep,
                                                 shape.ep_rank(mesh.world().rank()))));
  load_model(request.folder, store, mesh, request.config);
  Decoder decoder(request.config, store, mesh, kernels.table);

  std::vector<std::int32_t> prompt;
  for (const char c : options.prompt) prompt.push_back(static_cast<unsigned char>(c));
  if (speaks) std::cout << printable(options.prompt) << std::flush;
  generate(decoder, mesh, prompt, options.tokens,
           {.temperature = options.temperature, .top_k = options.top_k, .seed = options.seed},
           [](std::int32_t token) {
             std::cout << printable(std::string(1, static_cast<char>(token))) << std::flush;
           });
  if (speaks) std::cout << '\n';
  return 0;
}

}  // namespace moeloom
