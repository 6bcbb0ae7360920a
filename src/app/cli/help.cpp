#include "moeloom/base/version.hpp"

#include "cli/options.hpp"

namespace moeloom {

std::string moeloom_version() {
  return std::string("moeloom ") + kVersion + "\nlevel " + std::string(library_level()) + "\n";
}

std::string moeloom_help() {
  return R"(moeloom: expert-parallel training of mixture-of-experts language models

  moeloom <command> [options]              on one rank
  mpirun -n N moeloom <command> [options]  on N

Commands
  train     train a model on text or tokens, or go on with a run
  generate  text from a model, after a prompt
  chat      a conversation with a model, by its chat template
  eval      how well a model predicts texts and conversations, by source and by example
  inspect   what a model or a checkpoint holds, and what each rank would hold of it
  convert   a model's folder into another: experts from a dense MLP, listed or stacked experts, format, shards
  tokenize  text, jsonl and folders of them into a file of token ids, or lines into ids and back
  report    runs on one page: their lines over each other, their numbers and options side by side
  kernels   the kernels, what each replaces, and the decision for a model and mesh
  bench     bench ep: a layer and a training step at every ep, checked, timed, with a report
  calibrate measures this machine for plan: products, memory, and under mpirun the ways between ranks
  plan      which mesh and dispatcher to run on how many ranks: predicted time, memory and bytes
  mesh      on how many ranks of the hosts that are left, and at which mesh, a run fits

  moeloom <command> --help  lists its options
  moeloom --version         prints the version, and for which processors the library was compiled

Environment (the names after the comma are aliases)
  MOELOOM_PATCH, TWINKLE_NPU_PATCH          0 switches every kernel off; default 1
  MOELOOM_FUSED_OPS, TWINKLE_NPU_FUSED_OPS  0 switches fused rmsnorm, rope, swiglu and tiled dense off
  MOELOOM_GMM_PATCH, TWINKLE_NPU_GMM_PATCH  experts as grouped matmul: 0 never, 1 if ep > 1 and the weights are
                                            small and contiguous; MOELOOM_ only: auto (the default) if they are
                                            contiguous; a single rank with AVX-512 loops over
                                            small ones of about a row each; force always
  MOELOOM_BF16                              emulate: --dtype bf16 on CPUs without its instructions, slowly; pairs:
                                            not in tiles (AMX), whose sums have bits of their own
  MOELOOM_LOG                               debug, info, warn or error on the terminal; default info
  OMP_NUM_THREADS                           threads of a rank where --threads does not say; default: its share of
                                            the node's processors
)";
}

}  // namespace moeloom
