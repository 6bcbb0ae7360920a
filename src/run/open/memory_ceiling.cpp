#include "open/memory_ceiling.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "fields/job_words.hpp"

namespace moeloom {
namespace {

constexpr double kMiB = 1 << 20;

PlannedJob planned_of(const RunFacts& facts, const RunDecision& decision,
                      const std::set<std::string>& frozen) {
  return {.config = facts.model, .job = decision.job, .dtype = decision.dtype.type, .frozen = frozen};
}

/// Whole, so that what is said here is enough; what the program itself holds differs from start to start.
std::string enough(double bytes) {
  constexpr double kNextStart = 2;
  return "`memory` " + std::to_string(static_cast<Index>(std::ceil(bytes / kMiB + kNextStart))) + "MiB";
}

/// room: of a ceiling that the rank does not fit under.
std::string way_out(const RunFacts& facts, const RunDecision& decision, const std::set<std::string>& frozen,
                    const RowRoom& room) {
  const PlannedJob planned = planned_of(facts, decision, frozen);
  const std::string as_it_is = enough(room.memory.total()) + " is enough as it is";
  const auto fit = cheapest_fit_of_ranks(
      planned, room.ceiling - facts.program_bytes - facts.data_bytes - room.memory.save_copy);
  if (!fit) return as_it_is + "; no other mesh, and no more micro-batches or ranks, fit";
  std::string text = changed_train_options(decision.job, fit->job);
  if (const Layout& layout = fit->job.layout; layout.mesh.world() != planned.ranks())
    text = std::to_string(layout.mesh.world()) + " ranks, " + std::to_string(layout.ranks_per_node) +
           " a node" + (text.empty() ? "" : ", with " + text);
  return "the cheapest change that fits, with the same tokens a step: " + text + "\n  " +
         bytes_text(fit->memory.total() + facts.program_bytes + facts.data_bytes) +
         " a rank with even rows\n" + as_it_is;
}

/// A table by kind of bytes, single changes, and the way out.
std::string advice(const RunFacts& facts, const RunDecision& decision, const std::set<std::string>& frozen,
                   const RowRoom& room) {
  return memory_table(room.memory) + memory_changes_text(planned_of(facts, decision, frozen), facts.rates) +
         way_out(facts, decision, frozen, room);
}

std::string refusal(const RunFacts& facts, const RunDecision& decision, const std::set<std::string>& frozen) {
  const RowRoom& room = *decision.row_budget.room;
  std::string text = "memory ceiling = " + bytes_text(room.ceiling) + " is less than the " +
                     bytes_text(room.memory.total()) + " that a rank needs";
  if (room.range.least > 0)
    text += ", if it takes no more than " + std::to_string(room.range.least) + " rows of a layer at once";
  return text + "\n" + advice(facts, decision, frozen, room);
}

/// Between even rows and the most, bytes grow by as many a row, but for what the allocator rounds.
double memory_of_peak(const MemoryPeak& peak, const RunDecision& decision) {
  const double even = decision.memory.total();
  const auto& [least, balanced, most] = peak.range;
  if (most <= balanced) return even;
  const double share = static_cast<double>(peak.rows - balanced) / static_cast<double>(most - balanced);
  return std::lerp(even, decision.most_memory, std::clamp(share, 0.0, 1.0));
}

}  // namespace

std::string memory_changes_text(const PlannedJob& planned, const MachineRates& rates) {
  std::string lines;
  for (const MemoryChange& change : memory_changes(planned, rates)) {
    const auto percent = std::lround(100 * (change.time - 1));
    lines += "  " + changed_train_options(planned.job, change.job) + ": -" + bytes_text(-change.bytes) +
             " a rank, " + (percent < 0 ? "" : "+") + std::to_string(percent) + " % time" +
             (change.job.keeping.offload != planned.job.keeping.offload ? " and the disk's\n" : "\n");
  }
  return lines.empty() ? lines : "changed alone, with even rows and predicted times\n" + lines;
}

std::string memory_table(const MemoryNeed& need) {
  struct Kind {
    const char* name;
    double bytes;
  };
  std::array kinds = {Kind{"dense weights", need.dense_weights},
                      Kind{"dense gradients", need.dense_gradients},
                      Kind{"expert weights", need.expert_weights},
                      Kind{"expert gradients", need.expert_gradients},
                      Kind{"moments", need.moments},
                      Kind{"exact sums", need.exact_sums},
                      Kind{"packed experts", need.packed},
                      Kind{"activations", need.activations},
                      Kind{"buffers", need.buffers},
                      Kind{"replicas", need.replicas},
                      Kind{"copy for saves", need.save_copy},
                      Kind{"data", need.data},
                      Kind{"program and MPI", need.program}};
  std::ranges::stable_sort(kinds, std::ranges::greater(), &Kind::bytes);
  std::string lines;
  for (const auto& [name, bytes] : kinds)
    if (bytes > 0)
      lines += "  " + std::string(name) + std::string(18 - std::string(name).size(), ' ') +
               bytes_text(bytes) + "\n";
  return lines;
}

void require_use_of_offload(const std::filesystem::path& folder,
                            const std::vector<ParameterSpec>& parameters) {
  if (folder.empty() || ParameterStore::disk_bytes(parameters) > 0) return;
  throw ConfigError(
      {"`offload` " + folder.string() +
       " has nothing to keep there: no experts are frozen in bf16 or F16, as those of such a folder "
       "are beside `lora`; remove it"});
}

void require_within_ceiling(const RunFacts& facts, const RunDecision& decision,
                            const std::set<std::string>& frozen) {
  const std::optional<RowRoom>& room = decision.row_budget.room;
  if (room && !room->fits()) throw ConfigError({refusal(facts, decision, frozen)});
}

void require_within_node(const RunFacts& facts, const RunDecision& decision,
                         const std::set<std::string>& frozen, double available) {
  RowRoom room{.ceiling = available + facts.program_bytes,
               .range = row_range(facts.model, decision.job),
               .rows = 0,
               .memory = decision.memory};
  room.memory.save_copy = 0;  // is made where there is room for it
  if (room.fits()) return;
  throw ConfigError({"the machine has " + bytes_text(available) + " left for each rank, less than the " +
                     bytes_text(room.memory.total() - facts.program_bytes) + " that it will take\n" +
                     advice(facts, decision, frozen, room)});
}

Event peak_event(const MemoryPeak& peak, const RunDecision& decision) {
  Event event = Event().with("memory_peak", bytes_text(peak.bytes));
  const std::optional<RowRoom>& room = decision.row_budget.room;
  if (room) return event.with("ceiling", bytes_text(room->ceiling)).with("share", peak.bytes / room->ceiling);
  const double predicted = memory_of_peak(peak, decision);
  event.with("predicted", bytes_text(predicted)).with("share", peak.bytes / predicted);
  if (decision.most_memory > decision.memory.total())
    event.with("reason", "for the " + std::to_string(peak.rows) + " rows of a layer that came to a rank; " +
                             std::to_string(peak.range.balanced) + " are even, " +
                             std::to_string(peak.range.most) + " the most");
  return event;
}

}  // namespace moeloom
