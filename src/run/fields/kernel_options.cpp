// By which kernels, on how many threads: rows of train and of those that predict it.
#include "moeloom/kernels/registry.hpp"

#include "fields/option_groups.hpp"

namespace moeloom {

void add_threads_option(OptionTable& table, Index& threads, const std::string& help) {
  table.add("threads", "N", help, "MPI ranks and OpenMP threads share a node in many ways", threads)
      .at_least(0)
      .must([](double value) { return value <= kMostThreads; },
            "must be at most " + std::to_string(kMostThreads) +
                ": each has a stack and workspaces of its own; 0 takes the processors there are");
}

void add_kernel_options(OptionTable& table, KernelOptions& kernels) {
  table.add("kernels", "LIST", "auto, none, or ids with commas (`moeloom kernels` lists them)",
            "one kernel against the plain code, in tests and measurements", kernels.kernels);
  table.add_choice("gmm-rule",
                   "what is done where no variable asks for grouped matmul: a rule from the sizes, or "
                   "upstream's answer, no",
                   "runs of upstream that are to be repeated", kernels.gmm_rule,
                   {{"auto", GmmRule::kAuto}, {"upstream", GmmRule::kUpstream}});
  table
      .add("gmm-budget", "BYTES",
           "the most that packed copies of a layer's expert weights may take; what upstream's rule calls "
           "small",
           "packed copies are memory for speed; upstream has the number too", kernels.gmm_budget_bytes,
           read_bytes, exact_bytes_text)
      .called("gmm budget");
  add_threads_option(table, kernels.threads);
  table
      .add_choice("dtype", "what the experts' products multiply; bf16 sums in fp32 and needs fused_moe",
                  "bf16 doubles the products of a CPU with AMX or AVX512-BF16", kernels.dtype,
                  {{"fp32", DType::kF32}, {"bf16", DType::kBF16}})
      .called("compute dtype");
}

void check_kernels(const KernelOptions& kernels, Violations& violations) {
  violations.attempt([&] { KernelRegistry::builtin().named(kernels.kernels); });
}

}  // namespace moeloom
