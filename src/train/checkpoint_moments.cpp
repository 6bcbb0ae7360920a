#include "checkpoint_moments.hpp"

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

/// Elements of one tensor of the file that this rank owns, and where they lie in moments().
struct OwnedPart {
  const HfSlice* slice = nullptr;
  Index begin = 0;  // in the tensor
  Index state = 0;
  Index count = 0;
};

void append_parts(const OwnedBlock& block, const Parameter& parameter, std::vector<OwnedPart>& parts) {
  const Index begin = block.begin - parameter.offset;
  for (const HfSlice& slice : parameter.spec.slices) {
    const Index slice_begin = slice.row_begin * parameter.spec.cols;
    const Index slice_end = slice_begin + slice.rows * parameter.spec.cols;
    const Index low = std::max(begin, slice_begin);
    const Index high = std::min(begin + block.count, slice_end);
    if (low < high) parts.push_back({&slice, low - slice_begin, block.state + low - begin, high - low});
  }
}

std::vector<OwnedPart> owned_parts(const ParameterStore& store, const ShardedOptimizer& optimizer) {
  std::vector<OwnedPart> parts;
  for (const OwnedBlock& block : optimizer.owned_blocks())
    append_parts(block, store.parameters()[at(block.parameter)], parts);
  return parts;
}

std::vector<TensorPart> tensor_parts(const ParameterStore& store, ShardedOptimizer& optimizer) {
  std::vector<TensorPart> parts;
  const auto moments = moments_of(optimizer);
  for (const OwnedPart& part : owned_parts(store, optimizer))
    for (std::size_t m = 0; m < moments.size(); ++m)
      parts.push_back(
          {kPrefixes[m] + part.slice->name, part.begin, moments[m].subspan(at(part.state), at(part.count))});
  return parts;
}

std::vector<TensorSpec> moment_specs(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  for (const char* prefix : kPrefixes)
    for (TensorSpec& spec : tensor_specs(config, prefix)) specs.push_back(std::move(spec));
  return specs;
}

/// Of a part and its place, so that parts which changed places are found.
std::int64_t checksum_of(const TensorPart& part) {
  const std::array<std::uint64_t, 2> both = {checksum(std::as_bytes(part.values)),
                                             static_cast<std::uint64_t>(part.begin)};
  return static_cast<std::int64_t>(checksum(std::as_bytes(std::span(both))));
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

TensorChecksums sum_checksums(const std::vector<TensorSpec>& specs, const std::vector<TensorPart>& parts,
                              const Communicator& world) {
  std::map<std::string, std::size_t> place;
  for (const TensorSpec& spec : specs) place.emplace(spec.name, place.size());
  std::vector<std::int64_t> sums(specs.size(), 0);
  for (const TensorPart& part : parts) {
    std::int64_t& sum = sums[place.at(part.name)];
    sum = wrapping_sum(sum, checksum_of(part));
  }
  world.all_sum(std::span(sums));
  TensorChecksums checksums;
  for (const TensorSpec& spec : specs)
    checksums[spec.name] = hex_text(static_cast<std::uint64_t>(sums[place.at(spec.name)]));
  return checksums;
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
                  const ParameterStore& store, ShardedOptimizer& optimizer) {
  const SafetensorsFile file(path);
  for (const TensorSpec& spec : specs)
    if (file.info(spec.name).shape != spec.shape)
      throw IoError(path.string() + ": tensor " + spec.name + " has not the shape of its weight");
  const auto moments = moments_of(optimizer);
  for (const OwnedPart& part : owned_parts(store, optimizer))
    for (std::size_t m = 0; m < moments.size(); ++m)
      file.read(kPrefixes[m] + part.slice->name, part.begin,
                moments[m].subspan(at(part.state), at(part.count)));
}

}  // namespace

TensorChecksums save_moments(const std::filesystem::path& path, const ParameterStore& store,
                             ShardedOptimizer& optimizer, const Mesh& mesh, const ModelConfig& config) {
  const std::vector<TensorSpec> specs = moment_specs(config);
  const std::vector<TensorPart> parts = tensor_parts(store, optimizer);
  write_parts(mesh.world(), path, specs, parts);
  return sum_checksums(specs, parts, mesh.world());
}

void load_moments(const std::filesystem::path& path, const ParameterStore& store, ShardedOptimizer& optimizer,
                  const Mesh& mesh, const ModelConfig& config, const TensorChecksums& checksums) {
  const std::vector<TensorSpec> specs = moment_specs(config);
  agree(mesh.world(), [&] { read_moments(path, specs, store, optimizer); });
  const TensorChecksums found = sum_checksums(specs, tensor_parts(store, optimizer), mesh.world());
  agree(mesh.world(), [&] { require_same(path, checksums, found); });
}

std::map<std::string, std::vector<Index>> gather_times(const ParameterStore& store,
                                                       ShardedOptimizer& optimizer, const Mesh& mesh) {
  std::vector<std::int64_t> flat;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const ParameterSpec& spec = store.parameters()[p].spec;
    std::vector<std::int64_t> all(at(spec.total_groups), 0);
    if (writes(mesh, spec.placement)) std::ranges::copy(optimizer.times()[p], all.begin() + spec.first_group);
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
    std::copy_n(found->second.begin() + spec.first_group, spec.groups, optimizer.times()[p].begin());
  }
}

}  // namespace moeloom
