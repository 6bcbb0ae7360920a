#include "checkpoint/checkpoint_moments.hpp"

#include "base/checksum.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace moeloom {
namespace {

constexpr std::array kPrefixes = {"exp_avg.", "exp_avg_sq."};
constexpr std::array kMoments = {Moment::kFirst, Moment::kSecond};

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// By tensor, of parts and their places, so that parts which changed places are found.
struct PartSums {
  std::map<std::string, std::size_t> place;
  std::vector<std::int64_t> sums;

  explicit PartSums(const std::vector<TensorSpec>& specs) : sums(specs.size(), 0) {
    for (const TensorSpec& spec : specs) place.emplace(spec.name, place.size());
  }
  void add(const MomentPart& part, std::span<const float> values) {
    const std::array<std::uint64_t, 2> both = {checksum(std::as_bytes(values)),
                                               static_cast<std::uint64_t>(part.begin)};
    std::int64_t& sum = sums[place.at(part.name)];
    sum = wrapping_sum(sum, static_cast<std::int64_t>(checksum(std::as_bytes(std::span(both)))));
  }
};

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

/// -> the checksums of what was read, which another format would round.
std::vector<std::int64_t> read_moments(const std::filesystem::path& path,
                                       const std::vector<TensorSpec>& specs, const ParameterStore& store,
                                       ShardedOptimizer& optimizer, PositionBoard* board) {
  const SafetensorsFile file(path);
  for (const TensorSpec& spec : specs)
    if (file.info(spec.name).shape != spec.shape)
      throw IoError(path.string() + ": tensor " + spec.name + " has not the shape of its weight");
  PartSums sums(specs);
  std::vector<float> values;
  for (const MomentPart& part : owned_parts(store, optimizer)) {
    values.resize(at(part.values.size()));
    file.read(part.name, part.begin, values);
    sums.add(part, values);
    part.values.write(values);
    go_on(board);
  }
  return sums.sums;
}

}  // namespace

std::vector<MomentPart> owned_parts(const ParameterStore& store, ShardedOptimizer& optimizer) {
  std::vector<MomentPart> parts;
  for (const OwnedBlock& block : optimizer.owned_blocks()) {
    const Parameter& parameter = store.parameters()[at(block.parameter)];
    const ParameterSpec& spec = parameter.spec;
    const Index moved =
        (spec.group_ids[at(block.group)] - block.group) * (spec.rows / spec.groups) * spec.cols;
    for (std::size_t m = 0; m < kMoments.size(); ++m) {
      if (kMoments[m] == Moment::kSecond && block.second < 0) continue;
      parts.push_back({kPrefixes[m] + spec.name, moved + block.begin - parameter.offset,
                       optimizer.moments_of(block, kMoments[m])});
    }
  }
  return parts;
}

std::vector<TensorSpec> moment_specs(const ModelConfig& config, const ParameterStore& store,
                                     OptimizerKind kind) {
  std::vector<TensorSpec> specs;
  for (std::size_t m = 0; m < kMoments.size(); ++m)
    for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
      if (!store.find(spec.name).spec.frozen && (kMoments[m] == Moment::kFirst || !is_of_muon(spec, kind)))
        specs.push_back({kPrefixes[m] + spec.name, DType::kF32, {spec.rows, spec.cols}});
  return specs;
}

std::vector<std::int64_t> part_checksums(const std::vector<TensorSpec>& specs,
                                         const std::vector<MomentPart>& parts) {
  PartSums sums(specs);
  std::vector<float> memory;
  for (const MomentPart& part : parts) sums.add(part, part.values.read(memory));
  return sums.sums;
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
  const std::vector<TensorSpec> specs = moment_specs(config, store, optimizer.keeping().optimizer);
  std::vector<std::int64_t> sums;
  agree(mesh.world(), [&] { sums = read_moments(path, specs, store, optimizer, mesh.world().board()); });
  const TensorChecksums found = sum_checksums(specs, std::move(sums), mesh.world());
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
