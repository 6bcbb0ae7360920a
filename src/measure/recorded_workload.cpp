#include "measure/recorded_workload.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <stdexcept>

namespace moeloom {
namespace {

struct Source {
  std::filesystem::path path;
  std::optional<Index> layer;  // its number in the model
};

/// A last '@' with digits behind it is a layer; a path may hold others.
Source source_of(std::string_view name) {
  require(name.starts_with(RecordedWorkload::kPrefix), "a recorded workload is named trace:FILE");
  name.remove_prefix(RecordedWorkload::kPrefix.size());
  const std::size_t sign = name.rfind('@');
  Index layer = 0;
  if (sign != std::string_view::npos && sign + 1 < name.size()) {
    const std::string_view digits = name.substr(sign + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
    if (error == std::errc() && end == digits.data() + digits.size()) return {name.substr(0, sign), layer};
  }
  return {name, std::nullopt};
}

std::vector<Index> layers_in(const RoutingFile& file, std::optional<Index> wanted) {
  const std::vector<Index>& numbers = file.heading().layers;
  std::vector<Index> places(numbers.size());
  std::iota(places.begin(), places.end(), Index{0});
  if (!wanted) return places;
  const auto found = std::ranges::find(numbers, *wanted);
  if (found != numbers.end()) return {found - numbers.begin()};
  std::string known;
  for (const Index number : numbers) known += (known.empty() ? "" : ", ") + std::to_string(number);
  throw std::invalid_argument(file.path().string() + " has no layer " + std::to_string(*wanted) +
                              "; its sparse layers: " + known);
}

}  // namespace

RecordedWorkload::RecordedWorkload(std::string name)
    : name_(std::move(name)),
      file_(source_of(name_).path),
      layers_(layers_in(file_, source_of(name_).layer)) {
  for (Index step = 0; step < std::ssize(file_.steps()); ++step)
    for (const Index layer : layers_) {
      std::vector<Index>& rows = expert_rows_.emplace_back(at(file_.heading().experts));
      for (const std::int32_t expert : file_.read(step, layer).topk_idx)
        ++(expert < 0 ? empty_slots_ : rows[at(expert)]);
    }
}

std::optional<std::string> RecordedWorkload::why_not(const WorkloadShape& shape) const {
  const RoutingHeading& recorded = file_.heading();
  if (recorded.experts != shape.experts || recorded.top_k != shape.top_k)
    return "routing " + name_ + " was recorded with top-k = " + std::to_string(recorded.top_k) + " of " +
           std::to_string(recorded.experts) +
           " experts, and the benchmark has top-k = " + std::to_string(shape.top_k) + " of " +
           std::to_string(shape.experts) + "; choose the same, or leave the routing out";
  if (empty_slots_ > 0)
    return "routing " + name_ + " has " + std::to_string(empty_slots_) +
           " slots without an expert, and a benchmark's router fills all; leave the routing out";
  return std::nullopt;
}

std::vector<std::int32_t> RecordedWorkload::choose_experts(const WorkloadShape& shape, Index step,
                                                           TokenRange range) const {
  if (const auto reason = why_not(shape)) require(false, *reason);
  const auto layers = static_cast<Index>(layers_.size());
  const Index layer = layers_[at(step % layers)];
  const Index tokens = file_.heading().tokens, all = tokens * std::ssize(file_.steps());
  std::vector<std::int32_t> topk_idx;
  topk_idx.reserve(at(range.count * shape.top_k));
  Index token = (step / layers % all * (shape.tokens % all) + range.begin) % all;
  for (Index left = range.count; left > 0;) {
    const Index first = token % tokens, count = std::min(left, tokens - first);
    const std::vector<std::int32_t> chosen = file_.read(token / tokens, layer).topk_idx;
    const auto begin = chosen.begin() + first * shape.top_k;
    topk_idx.insert(topk_idx.end(), begin, begin + count * shape.top_k);
    token = (token + count) % all;
    left -= count;
  }
  return topk_idx;
}

}  // namespace moeloom
