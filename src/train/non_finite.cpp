#include "train/non_finite.hpp"

#include "model/decoder.hpp"
#include "model/parts/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

namespace moeloom {
namespace {

constexpr Index kNowhere = std::numeric_limits<Index>::max();

/// Where a rank met the first number that is not finite: a place in an order that all ranks share, and the
/// expert if the place is a parameter of experts.
struct Finding {
  Index place = kNowhere;
  Index expert = -1;
};

/// The ranks of the least place, by expert.
struct FirstOfAll {
  Index place = kNowhere;
  std::map<Index, std::vector<std::size_t>> ranks_by_expert;
};

FirstOfAll first_of_all(const Finding& mine, const Communicator& world) {
  const std::array<std::int64_t, 2> sent = {mine.place, mine.expert};
  const std::vector<std::int64_t> all = world.all_gather(std::span<const std::int64_t>(sent));
  FirstOfAll first;
  for (std::size_t i = 0; i < all.size(); i += 2) first.place = std::min<Index>(first.place, all[i]);
  for (std::size_t i = 0; i < all.size(); i += 2)
    if (all[i] == first.place) first.ranks_by_expert[all[i + 1]].push_back(i / 2);
  return first;
}

/// " on rank 1", " on ranks 0,3".
std::string on_ranks(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? " on rank " : " on ranks ";
  for (const std::size_t rank : ranks) text += std::to_string(rank) + ',';
  text.pop_back();
  return text;
}

std::string text_of(const FirstOfAll& first, const std::string& name) {
  std::string text;
  for (const auto& [expert, ranks] : first.ranks_by_expert) {
    text += text.empty() ? name : "; " + name;
    if (expert >= 0) text += ", expert " + std::to_string(expert);
    text += on_ranks(ranks);
  }
  return text;
}

bool is_finite(ConstRows rows) {
  return rows.visit([](auto view) {
    return std::ranges::all_of(view.flat(), [](auto value) { return std::isfinite(as_float(value)); });
  });
}

/// The first group of a parameter whose part of `values` (its weights or its gradient) is not finite.
Finding finding_in(const ParameterSpec& spec, ConstRows values, Index place) {
  const Index rows = spec.rows / spec.groups;
  for (Index group = 0; group < spec.groups; ++group)
    if (!is_finite(values.rows_from(group * rows, rows)))
      return {place, spec.placement == Placement::kExperts ? spec.group_ids[at(group)] : -1};
  return {};
}

/// Visits parameters by rising place, parameter_at(place); stops at the first that is not finite.
template <typename ParameterAt, typename ValuesOf>
std::string first_parameter(const ParameterStore& store, const Communicator& world, ParameterAt parameter_at,
                            ValuesOf values_of) {
  Finding mine;
  for (Index place = 0; place < std::ssize(store.parameters()) && mine.place == kNowhere; ++place) {
    const Parameter& parameter = parameter_at(place);
    if (const std::optional<ConstRows> values = values_of(parameter))
      mine = finding_in(parameter.spec, *values, place);
  }
  const FirstOfAll first = first_of_all(mine, world);
  return first.place == kNowhere ? "" : text_of(first, parameter_at(first.place).spec.name);
}

const Parameter& from_the_end(const ParameterStore& store, Index place) {
  return *(store.parameters().rbegin() + place);
}

}  // namespace

std::string first_non_finite_output(const Decoder& decoder, const Communicator& world) {
  const FirstOfAll first =
      first_of_all({.place = decoder.first_non_finite_layer().value_or(kNowhere)}, world);
  if (first.place == kNowhere) return {};
  return text_of(first, first.place == decoder.config().num_hidden_layers
                            ? "the final norm"
                            : "the output of layer " + std::to_string(first.place));
}

std::string first_non_finite_gradient(const ParameterStore& store, const Communicator& world) {
  const auto parameter_at = [&](Index place) -> const Parameter& { return from_the_end(store, place); };
  return first_parameter(store, world, parameter_at, [](const Parameter& parameter) {
    return parameter.spec.frozen ? std::nullopt : std::optional(parameter.gradient());
  });
}

void GradientSearch::look_at(Index part) {
  for (Index place = 0; place < (place_ < 0 ? std::ssize(store_.parameters()) : place_); ++place) {
    const Parameter& parameter = from_the_end(store_, place);
    if (parameter.spec.frozen || part_of_backward(parameter.spec) != part) continue;
    const Finding found = finding_in(parameter.spec, parameter.gradient(), place);
    if (found.place == kNowhere) continue;
    place_ = found.place;
    expert_ = found.expert;
    return;
  }
}

std::string GradientSearch::first(const Communicator& world) const {
  const FirstOfAll first = first_of_all({place_ < 0 ? kNowhere : place_, expert_}, world);
  return first.place == kNowhere ? "" : text_of(first, from_the_end(store_, first.place).spec.name);
}

std::string first_non_finite_weight(const ParameterStore& store, const Communicator& world) {
  store.require_whole();
  const auto from_the_start = [&](Index place) -> const Parameter& {
    return *(store.parameters().begin() + place);
  };
  return first_parameter(store, world, from_the_start,
                         [](const Parameter& parameter) { return std::optional(parameter.weights()); });
}

}  // namespace moeloom
