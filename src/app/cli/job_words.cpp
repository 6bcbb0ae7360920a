#include "cli/job_words.hpp"

namespace moeloom {
namespace {

void add(std::string& words, const char* option, Index before, Index after) {
  if (before != after) words += " --" + std::string(option) + " " + std::to_string(after);
}

std::string without_space(const std::string& words) {
  return words.substr(words.empty() ? 0 : 1);
}

Index rank_tokens(const Job& job) {
  return job.batch.sequences / job.layout.mesh.world() * job.batch.length;
}

}  // namespace

std::string changed_keeping(const Keeping& before, const Keeping& after) {
  std::string words;
  const auto say = [&](const char* option, auto Keeping::*field) {
    if (before.*field != after.*field)
      words += " --" + std::string(option) + " " + std::string(name_of(after.*field));
  };
  say("optimizer", &Keeping::optimizer);
  say("moments", &Keeping::moments);
  say("masters", &Keeping::masters);
  say("gradients", &Keeping::gradients);
  say("recompute", &Keeping::recompute);
  if (before.shard_dense != after.shard_dense) words += " --shard-dense yes";
  if (before.offload != after.offload) words += " --offload " + after.offload.string();
  return words;
}

std::string changed_train_options(const Job& before, const Job& after) {
  std::string words;
  add(words, "accumulate", before.batch.micro_batches, after.batch.micro_batches);
  words += changed_keeping(before.keeping, after.keeping);
  const Index ep = after.layout.mesh.ep;
  add(words, "ep", before.layout.mesh.ep, ep);
  const DispatcherKind kind = after.exchange.dispatcher;
  if (before.exchange.dispatcher != kind && ep > 1) words += " --dispatcher " + std::string(name_of(kind));
  return without_space(words);
}

std::string changed_plan_options(const Job& before, const Job& after) {
  std::string words;
  add(words, "ranks", before.layout.mesh.world(), after.layout.mesh.world());
  add(words, "ranks-per-node", before.layout.ranks_per_node, after.layout.ranks_per_node);
  add(words, "tokens-per-rank", rank_tokens(before), rank_tokens(after));
  add(words, "accumulate", before.batch.micro_batches, after.batch.micro_batches);
  return without_space(words + changed_keeping(before.keeping, after.keeping));
}

}  // namespace moeloom
