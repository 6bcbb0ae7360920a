#include "checkpoint/checkpoint_moments.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/checksum.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

constexpr std::array kPrefixes = {"exp_avg.", "exp_avg_sq."};

std::array<std::span<float>, 2> moments_of(ShardedOptimizer& optimizer) {
  return {optimizer.first_moments(), optimizer.second_moments()};
}

/// Of a part and its place, so that parts which changed places are found.
std::int64_t checksum_of(const MomentPart& part) {
  const std::array<std::uint64_t, 2> both = {checksum(std::as_bytes(part.values)),
                                             static_cast<std::uint64_t>(part.begin)};
  return static_cast<std::int64_t>(checksum(std::as_bytes(std::span(both))));
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

void require_same(const std::filesystem::path& path, const TensorChecksums& expected,
                  const TensorChecksums& found) {
  for (const auto& [name, hex] : found) {
    const auto kept = expected.find(name);
    if (kept == expected.end()) throw IoError(path.string() + ": no checksum was kept for tensor " + name);
    if (kept->second != hex)
      throw IoError(path.string() + ": tensor " + name + " is damaged: its checksum was " + kept->second +
                    " at save and is " + hex);
  }
}

void read_moments(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                  const ParameterStore& store, ShardedOptimizer& optimizer, PositionBoard* board) {
  const SafetensorsFile file(path);
  for (const TensorSpec& spec : specs)
    if (file.info(spec.name).shape != spec.shape)
      throw IoError(path.string() + ": tensor " + spec.name + " has not the shape of its weight");
  for (const MomentPart& part : owned_parts(store, optimizer)) {
    file.read(part.name, part.begin, part.values);
    go_on(board);
  }
}

}  // namespace

std::vector<MomentPart> owned_parts(const ParameterStore& store, ShardedOptimizer& optimizer) {
  std::vector<MomentPart> parts;
  const auto moments = moments_of(optimizer);
  for (const OwnedBlock& block : optimizer.owned_blocks()) {
    const Parameter& parameter = store.parameters()[at(block.parameter)];
    const ParameterSpec& spec = parameter.spec;
    const Index moved =
        (spec.group_ids[at(block.group)] - block.group) * (spec.rows / spec.groups) * spec.cols;
    for (std::size_t m = 0; m < moments.size(); ++m)
      parts.push_back({kPrefixes[m] + spec.name, moved + block.begin - parameter.offset,
                       moments[m].subspan(at(block.state), at(block.count))});
  }
  return parts;
}

std::vector<TensorSpec> moment_specs(const ModelConfig& config, const ParameterStore& store) {
  std::vector<TensorSpec> specs;
  for (const char* prefix : kPrefixes)
    for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
      if (!store.find(spec.name).spec.frozen)
        specs.push_back({prefix + spec.name, DType::kF32, {spec.rows, spec.cols}});
  return specs;
}

std::vector<std::int64_t> part_checksums(const std::vector<TensorSpec>& specs,
                                         const std::vector<MomentPart>& parts) {
  std::map<std::string, std::size_t> place;
  for (const TensorSpec& spec : specs) place.emplace(spec.name, place.size());
  std::vector<std::int64_t> sums(specs.size(), 0);
  for (const MomentPart& part : parts) {
    std::int64_t& sum = sums[place.at(part.name)];
    sum = wrapping_sum(sum, checksum_of(part));
  }
  return sums;
}

TensorChecksums sum_checksums(const std::vector<TensorSpec>& specs, std::vector<std::int64_t> mine,
                              const Communicator& world) {
  world.all_sum(std::span(mine));
  TensorChecksums checksums;
  for (std::size_t i = 0; i < specs.size(); ++i)
    checksums[specs[i].name] = hex_text(static_cast<std::uint64_t>(mine[i]));
  return checksums;
}

void load_moments(const std::filesystem::path& path, const ParameterStore& store, ShardedOptimizer& optimizer,
                  const Mesh& mesh, const ModelConfig& config, const TensorChecksums& checksums) {
  const std::vector<TensorSpec> specs = moment_specs(config, store);
  agree(mesh.world(), [&] { read_moments(path, specs, store, optimizer, mesh.world().board()); });
  const TensorChecksums found =
      sum_checksums(specs, part_checksums(specs, owned_parts(store, optimizer)), mesh.world());
  agree(mesh.world(), [&] { require_same(path, checksums, found); });
}

std::map<std::string, std::vector<Index>> gather_times(const ParameterStore& store,
                                                       ShardedOptimizer& optimizer, const Mesh& mesh) {
  std::vector<std::int64_t> flat;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const ParameterSpec& spec = store.parameters()[p].spec;
    std::vector<std::int64_t> all(at(spec.total_groups), 0);
    if (writes(mesh, spec.placement))
      for (Index group = 0; group < spec.groups; ++group)
        all[at(spec.group_ids[at(group)])] = optimizer.times()[p][at(group)];
    flat.insert(flat.end(), all.begin(), all.end());
  }
  mesh.world().all_sum(std::span(flat));
  std::map<std::string, std::vector<Index>> times;
  auto next = flat.cbegin();
  for (const Parameter& parameter : store.parameters()) {
    times[parameter.spec.name].assign(next, next + parameter.spec.total_groups);
    next += parameter.spec.total_groups;
  }
  return times;
}

void restore_times(const std::map<std::string, std::vector<Index>>& times, const ParameterStore& store,
                   ShardedOptimizer& optimizer) {
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const ParameterSpec& spec = store.parameters()[p].spec;
    const auto found = times.find(spec.name);
    if (found == times.end() || static_cast<Index>(found->second.size()) != spec.total_groups)
      throw IoError("the checkpoint has no update counts for " + spec.name + " with " +
                    std::to_string(spec.total_groups) + " groups");
    for (Index group = 0; group < spec.groups; ++group)
      optimizer.times()[p][at(group)] = found->second[at(spec.group_ids[at(group)])];
  }
}

}  // namespace moeloom
