#include "train/routing/routing_replay.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "train/routing/routing_recorder.hpp"

#include <algorithm>

namespace moeloom {
namespace {

std::string numbers(const std::vector<Index>& values) {
  std::string text;
  for (const Index value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text.empty() ? "none" : text;
}

void check_fit(const RoutingFile& file, const ModelConfig& config, const BatchShape& batch) {
  const RoutingHeading& recorded = file.heading();
  Violations violations;
  const auto same = [&](const char* what, const std::string& there, const std::string& here,
                        const char* way_out) {
    violations.unless(there == here, file.path().string() + " was recorded with " + what + " = " + there +
                                         ", and this run has " + here + "; " + way_out);
  };
  const auto same_number = [&](const char* what, Index there, Index here, const char* way_out) {
    same(what, std::to_string(there), std::to_string(here), way_out);
  };
  constexpr const char* kOtherModel = "replay it in a model that has the same";
  same_number("num_experts", recorded.experts, config.num_experts, kOtherModel);
  same_number("num_experts_per_tok", recorded.top_k, config.num_experts_per_tok, kOtherModel);
  same("sparse layers", numbers(recorded.layers), numbers(sparse_layers_of(config)), kOtherModel);
  same_number("sequence length", recorded.sequence_length, batch.length, "choose the same");
  same_number("tokens a step", recorded.tokens, batch.tokens(), "choose as many sequences a step");
  violations.throw_if_any();
}

std::uint64_t text_hash_of_step(const BatchSource& batches, const BatchShape& shape, Index world,
                                Index step) {
  std::vector<std::int32_t> ids;
  for (Index rank = 0; rank < world; ++rank)
    for (Index micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      const Batch batch = batches.train(step, micro_batch, rank);
      ids.insert(ids.end(), batch.input_ids.begin(), batch.input_ids.end());
    }
  return text_hash(ids);
}

}  // namespace

RoutingReplay::RoutingReplay(const std::filesystem::path& path, const ModelConfig& config,
                             const BatchShape& batch, Index world)
    : file_(path), batch_(batch), world_(world) {
  check_fit(file_, config, batch);
}

void RoutingReplay::match(const BatchSource& batches, Index from, Index to, bool may_be_over) {
  by_number_ = std::ranges::all_of(file_.steps(), [&](const RecordedStep& step) {
    return text_hash_of_step(batches, batch_, world_, step.number) == step.text_hash;
  });
  if (may_be_over || forced_steps(from, to) > 0) return;
  throw ConfigError(
      {file_.path().string() + " holds the routing of steps " + std::to_string(file_.steps().front().number) +
       " to " + std::to_string(file_.steps().back().number) + " of these data, and this run takes " +
       std::to_string(from) + " to " + std::to_string(to - 1) + "; record those, or choose other steps"});
}

Index RoutingReplay::forced_steps(Index from, Index to) const {
  if (!by_number_) return to - from;
  return std::ranges::count_if(
      file_.steps(), [&](const RecordedStep& step) { return from <= step.number && step.number < to; });
}

std::optional<Index> RoutingReplay::place_of(Index step) const {
  const auto& steps = file_.steps();
  if (!by_number_) return step % std::ssize(steps);
  const auto found = std::ranges::lower_bound(steps, step, {}, &RecordedStep::number);
  if (found == steps.end() || found->number != step) return std::nullopt;
  return found - steps.begin();
}

void RoutingReplay::give(MicroBatchPlace place, Batch& batch) const {
  const std::optional<Index> step = place_of(place.step);
  if (!step) return;
  const RoutingHeading& recorded = file_.heading();
  require(batch.first_token + batch.tokens() <= recorded.tokens, "a batch must lie in its step");
  batch.given_topk_idx.clear();
  for (Index layer = 0; layer < std::ssize(recorded.layers); ++layer) {
    const std::vector<std::int32_t> chosen = file_.read(*step, layer).topk_idx;
    const auto first = chosen.begin() + batch.first_token * recorded.top_k;
    batch.given_topk_idx.emplace_back(first, first + batch.tokens() * recorded.top_k);
  }
}

}  // namespace moeloom
