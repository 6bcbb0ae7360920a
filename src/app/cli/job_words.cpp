#include "cli/job_words.hpp"

#include "cli/option_groups.hpp"

namespace moeloom {
namespace {

void add(std::string& words, const char* option, Index before, Index after) {
  if (before != after) words += " --" + std::string(option) + " " + std::to_string(after);
}

std::string without_space(const std::string& words) {
  return words.substr(words.empty() ? 0 : 1);
}

std::vector<std::pair<std::string, std::string>> texts_of(const OptionTable& table) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Option& option : table.options()) texts.emplace_back(option.name, option.get());
  return texts;
}

Index rank_tokens(const Job& job) {
  return job.batch.sequences / job.layout.mesh.world() * job.batch.length;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> format_texts(const Keeping& keeping) {
  Keeping said = keeping;
  OptionTable table;
  add_format_options(table, said);
  return texts_of(table);
}

std::string changed_keeping(const Keeping& before, const Keeping& after) {
  Keeping said;
  OptionTable table;
  add_format_options(table, said);
  add_memory_options(table, said);
  said = before;
  const auto then = texts_of(table);
  said = after;
  const auto now = texts_of(table);
  std::string words;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (then[i] != now[i]) words += " --" + now[i].first + " " + now[i].second;
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
