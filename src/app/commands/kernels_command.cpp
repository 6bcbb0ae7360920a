#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "plan/kernel_modules.hpp"

#include <algorithm>
#include <cstdio>

#include "cli/environment.hpp"
#include "cli/options.hpp"
#include "cli/rows/flag_words.hpp"
#include "commands/commands.hpp"
#include "open/model_folder.hpp"
#include "open/processors.hpp"
#include "open/run_decision.hpp"

namespace moeloom {
namespace {

std::string aliases_text(const Kernel& kernel) {
  std::string text;
  for (const std::string& alias : kernel.aliases) text += (text.empty() ? "" : ", ") + alias;
  return text;
}

void print_decision(const RunDecision& decision, const MeshShape& shape) {
  std::printf("kernels for %s\n", shape.text().c_str());
  std::printf("  asked for  %s\n  GMM        %s\n", decision.kernels_request.c_str(),
              decision.gmm_request.c_str());
  std::printf("  decision   %s: %s\n", decision.gmm.apply ? "grouped" : "loop",
              with_flags(decision.gmm.reason).c_str());
  std::printf("  dtype      %s: %s\n\n", std::string(dtype_text(decision.dtype.type)).c_str(),
              with_flags(decision.dtype.reason).c_str());
  const KernelRegistry registry = KernelRegistry::builtin();
  for (const KernelReport& report : decision.kernels) {
    const Kernel& kernel = registry.find(report.id);
    std::printf("%-15s %s\n", report.id.c_str(), report.applied ? "applied" : "not applied");
    std::printf("  replaces %s\n  because  %s\n", kernel.replaces.c_str(), with_flags(report.reason).c_str());
    if (!kernel.aliases.empty()) std::printf("  alias    %s\n", aliases_text(kernel).c_str());
  }
}

/// The layers as a heading where they change, then a module a line.
void print_modules(const std::vector<ModuleRow>& rows) {
  std::size_t module_width = 0;
  std::size_t kernel_width = 0;
  for (const ModuleRow& row : rows) {
    module_width = std::max(module_width, row.module.size());
    kernel_width = std::max(kernel_width, row.kernel.size());
  }
  std::printf("\nmodules\n");
  std::string layers;
  for (const ModuleRow& row : rows) {
    if (row.layers != layers && !row.layers.empty()) std::printf("  %s\n", row.layers.c_str());
    layers = row.layers;
    const int indent = row.layers.empty() ? 2 : 4;
    std::printf("%*s%-*s  %-*s  %s\n", indent, "", static_cast<int>(module_width) + 4 - indent,
                row.module.c_str(), static_cast<int>(kernel_width), row.kernel.c_str(),
                with_flags(row.what).c_str());
  }
}

}  // namespace

int kernels_command(int argc, char** argv) {
  const KernelsOptions options = parse_kernels_options(argc, argv);
  const ModelConfig config = config_of(options.model);
  const Index ranks = options.ranks == 0 ? options.ep : options.ranks;
  const RunFlags flags = read_environment();
  Violations violations;
  violations.add(config_violations(config));
  violations.add(
      mesh_violations({0, options.ep, {"dp", "ep"}}, ranks, config.has_experts() ? config.num_experts : 0));
  violations.attempt([&] { gmm_request(options.kernels, flags); });
  violations.throw_if_any();
  const MeshShape shape = MeshShape{0, options.ep, {"dp", "ep"}}.completed(ranks);
  set_threads(threads_for(options.kernels.threads, flags.threads, Communicator::self()));
  Job job{.batch = options.batch,
          .layout = {.mesh = shape,
                     .ranks_per_node = ranks,
                     .processors_per_node = ranks * threads(),
                     .threads = threads()}};
  job.batch.sequences = std::max(job.batch.sequences, ranks * job.batch.micro_batches);
  const RunDecision decision =
      decide_run(facts_of_job(config, job), run_request(options.kernels, {}, flags), Communicator::self());
  print_decision(decision, shape);
  print_modules(kernel_modules(config, decision.kernels));
  return 0;
}

}  // namespace moeloom
