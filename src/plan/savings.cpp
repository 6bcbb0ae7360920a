#include "savings.hpp"

#include <algorithm>

namespace moeloom {
namespace {

template <typename Format>
std::vector<Format> from(Format asked, std::span<const Format> all) {
  std::vector<Format> formats;
  std::ranges::copy_if(all, std::back_inserter(formats), [&](Format format) { return format >= asked; });
  return formats;
}

}  // namespace

Savings savings_of(const PlannedJob& planned) {
  const Keeping& asked = planned.job.keeping;
  Savings savings{.moments = from<MomentFormat>(asked.moments, kMomentFormats),
                  .masters = {asked.masters},
                  .gradients = {asked.gradients},
                  .recompute = from<Recompute>(asked.recompute, kRecomputes),
                  .shard_dense = {asked.shard_dense},
                  .offload = {asked.offload}};
  const bool exact = planned.job.batch.exact > 0;
  if (asked.masters != Storage::kBf16) savings.masters.push_back(Storage::kBf16);
  if (asked.gradients == Storage::kFp32 && !exact && planned.config.has_experts())
    savings.gradients.push_back(Storage::kBf16);
  if (!asked.shard_dense && !exact) savings.shard_dense.push_back(true);
  if (!asked.offloads() && ParameterStore::disk_bytes(parameters_at(planned, 1)) > 0)
    savings.offload.emplace_back("DIR");
  return savings;
}

}  // namespace moeloom
