#include "savings.hpp"

namespace moeloom {
namespace {

template <typename Field, typename Value>
Saving saving(Field Keeping::*field, Value value) {
  return [field, value](Keeping& keeping) { keeping.*field = value; };
}

/// Values that take less than the one that is asked for.
template <typename Field>
std::vector<Saving> beyond(const Keeping& asked, Field Keeping::*field, std::span<const Field> all) {
  std::vector<Saving> savings;
  for (const Field value : all)
    if (value > asked.*field) savings.push_back(saving(field, value));
  return savings;
}

/// One, where it can be had.
template <typename Field, typename Value>
std::vector<Saving> one_if(bool can, Field Keeping::*field, Value value) {
  return can ? std::vector{saving(field, value)} : std::vector<Saving>();
}

}  // namespace

std::vector<std::vector<Saving>> savings_of(const PlannedJob& planned) {
  const Keeping& asked = planned.job.keeping;
  const bool exact = planned.job.batch.exact > 0;
  const bool has_disk = !asked.offloads() && ParameterStore::disk_bytes(parameters_at(planned, 1)) > 0;
  const bool has_experts = planned.config.has_experts();
  return {
      one_if(has_disk, &Keeping::offload, "DIR"),  // a folder that nobody has named yet
      one_if(asked.masters != Storage::kBf16, &Keeping::masters, Storage::kBf16),
      one_if(asked.gradients == Storage::kFp32 && !exact && has_experts, &Keeping::gradients, Storage::kBf16),
      beyond<MomentFormat>(asked, &Keeping::moments, kMomentFormats),
      beyond<Recompute>(asked, &Keeping::recompute, kRecomputes),
      one_if(!asked.shard_dense && !exact, &Keeping::shard_dense, true)};
}

}  // namespace moeloom
