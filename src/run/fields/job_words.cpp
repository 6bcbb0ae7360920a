#include "fields/job_words.hpp"

#include "fields/option_groups.hpp"

namespace moeloom {
namespace {

OptionTexts with_rows(OptionTexts texts, const OptionTable& rows) {
  for (const Option& option : rows.options()) texts.emplace_back(option.name, option.get());
  return texts;
}

OptionTexts with_keeping(const OptionTexts& texts, Keeping keeping) {
  OptionTable rows;
  add_format_options(rows, keeping);
  add_memory_options(rows, keeping);
  return with_rows(texts, rows);
}

OptionTexts train_texts(const Job& job) {
  OptionTexts texts = with_keeping({{"accumulate", value_text(job.batch.micro_batches)}}, job.keeping);
  texts.emplace_back("ep", value_text(job.layout.mesh.ep));
  texts.emplace_back("dispatcher", name_of(job.exchange.dispatcher));
  return texts;
}

OptionTexts plan_texts(const Job& job) {
  const Index ranks = job.layout.mesh.world();
  return with_keeping({{"ranks", value_text(ranks)},
                       {"ranks-per-node", value_text(job.layout.ranks_per_node)},
                       {"tokens-per-rank", value_text(job.batch.sequences / ranks * job.batch.length)},
                       {"accumulate", value_text(job.batch.micro_batches)}},
                      job.keeping);
}

/// "--name text" of each of `after` that was another.
std::string changed(const OptionTexts& before, const OptionTexts& after) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < after.size(); ++i)
    if (before[i] != after[i]) words.push_back("`" + after[i].first + "` " + after[i].second);
  return joined(words, " ");
}

}  // namespace

OptionTexts format_texts(Keeping keeping) {
  OptionTable rows;
  add_format_options(rows, keeping);
  return with_rows({}, rows);
}

std::string changed_keeping(const Keeping& before, const Keeping& after) {
  const std::string words = changed(with_keeping({}, before), with_keeping({}, after));
  return (words.empty() ? "" : " ") + words;
}

std::string changed_train_options(const Job& before, const Job& after) {
  OptionTexts now = train_texts(after);
  if (after.layout.mesh.ep == 1) now.pop_back();  // no rows travel
  return changed(train_texts(before), now);
}

std::string changed_plan_options(const Job& before, const Job& after) {
  return changed(plan_texts(before), plan_texts(after));
}

}  // namespace moeloom
