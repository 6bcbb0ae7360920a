// Ranks with what all layers on them share: ways for rows, buffers, and trips that wait for the next forward.
#pragma once

#include "moe/routed_experts.hpp"
#include "moeloom/c/moeloom.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "door.hpp"
#include "guard.hpp"
#include "ways.hpp"

namespace moeloom::c {

/// How rows of layers with so many experts travel.
struct Way {
  Way(const Communicator& ranks, Index num_experts, const DispatcherSettings& opened)
      : dispatcher(ranks, num_experts, opened), runner(opened) {}
  Dispatcher dispatcher;
  ExpertRunner runner;
};

struct WayKey {
  Index num_experts = 0;
  DispatcherKind kind = DispatcherKind::kAlltoall;
  Index chunks = 0;
  Index pretended_nodes = 0;
  auto operator<=>(const WayKey&) const = default;
};

/// What a forward leaves, and the memory of it.
struct TripMemory {
  RoutedExperts experts{ExpertShard{}};
  Way* way = nullptr;
  std::vector<std::int32_t> topk_idx = {};
  std::vector<float> topk_weights = {};
  Index num_experts = 0, top_k = 0, tokens = 0, width = 0, inter = 0;
  Index number = 0;  // of forwards on the group
  bool in_bf16 = false;
  ChosenExperts chosen() const { return {topk_idx, topk_weights, top_k}; }
};

/// Ranks and where they meet: of a group, and of the groups whose calls pass its door, which live longer.
/// Does not move: dispatchers and the door point to `ranks`.
struct Members {
  Members(Communicator members, bool are_of_mpi, std::vector<Index> numbers, Index all, Index most_on_a_node);
  Communicator ranks;
  bool of_mpi;  // also where the communicator is of one rank; not self()
  Door door;
  std::atomic<bool> busy = false;
  Index ranks_per_node;  // of the whole, on the node with the most
};

class Group {
 public:
  Group(Communicator ranks, bool of_mpi);
  /// Ranks [size] of a whole that was divided, by their numbers there.
  Group(Communicator ranks, const Group& whole, std::vector<Index> numbers);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::shared_ptr<Members>& members() const { return members_; }
  const Communicator& ranks() const { return members_->ranks; }
  Door& door() { return members_->door; }
  /// Whose door every collective call on this group passes first: who went on to a call of the whole is met
  /// there by neighbours that did not. null: it was not divided. From any thread.
  std::shared_ptr<Members> row() const;
  void set_row(std::shared_ptr<Members> row);
  /// Of its own door and of the row's. From any thread.
  void set_timeout(double seconds);
  /// Door::meet() with an error of this rank, by way of the row's door. Collective.
  void meet(const Call& call, ml_status status = ML_OK, const std::string& error = {});
  /// Of forwards and plans: the same one on all ranks has the same number.
  Index next_number() { return ++numbers_; }

  /// What decides how rows travel, asked once. Collective over the ranks, in its first call with a number.
  const RunFacts& row_facts(Index pretended_nodes);
  /// Collective over the ranks, in its first call with a key. Throws AgreedError.
  Way& way(const WayKey& key);
  bool owns(const Way& way) const;
  MoeWorkspace& workspace() { return workspace_; }
  PhaseClock& clock() { return clock_; }
  /// One a rank, of the last gathering.
  std::vector<std::string>& texts() { return texts_; }

  /// The last one that came back, whose pages are warmest, or a new one.
  std::unique_ptr<TripMemory> take_trip();
  /// From any thread.
  void give_back(std::unique_ptr<TripMemory> trip);
  /// Buffers and trips that wait are freed.
  void release();

 private:
  friend struct EndedGroups;
  std::shared_ptr<Members> members_;
  std::shared_ptr<Members> row_ = nullptr;
  std::map<Index, RunFacts> row_facts_;
  std::map<WayKey, std::unique_ptr<Way>> ways_;
  Index numbers_ = 0;
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::vector<std::string> texts_ = {};
  mutable std::mutex mutex_;  // of row_ and trips_
  std::vector<std::unique_ptr<TripMemory>> trips_;
  std::unique_ptr<Group> ended_before_;  // where this one waits for the next MpiTurn
};

/// Groups are held by this alone. The last holder may be any thread, beside a call of another or one that the
/// program itself makes of MPI: what MPI has of the group is freed at the next MpiTurn, but where MPI is for
/// several threads at once.
std::shared_ptr<Group> held(std::unique_ptr<Group> group);

/// While one lives, MPI goes on, and is of the calling thread, where it was not started for several at once:
/// two groups of several ranks do not make it two. Not by waiting: ranks whose threads came in another order
/// would wait for each other.
class MpiTurn {
 public:
  enum class For { kCall, kEnd };
  /// kEnd: of this thread alone in any case. Throws Refusal.
  explicit MpiTurn(For purpose = For::kCall);
  ~MpiTurn();
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;
  /// Whether MPI was running when it began.
  bool has_mpi() const { return has_mpi_; }

 private:
  bool has_mpi_ = false;
};

/// While one lives, the group, and the row whose door it passes, are of the calling thread, and so is MPI.
/// Throws Refusal, also where MPI has ended, whose calls would end the process then, and MpiError where it is
/// of another thread alone.
class Turn {
 public:
  /// splits: its communicator, for which one rank calls MPI too.
  explicit Turn(Group& group, bool splits = false);

 private:
  std::optional<MpiTurn> of_mpi_ = {};  // until a row that has been replaced is gone
  Use own_;
  std::shared_ptr<Members> row_;
  std::optional<Use> of_row_ = {};
};

/// The begin of every collective call: `phase`, which may fail on one rank alone and moves no data; then
/// every rank throws, with the text and the ranks of it. The status of a rank that failed is its own.
/// Collective.
template <typename Phase>
void in_agreement(Group& group, const Call& call, Phase&& phase) {
  if (group.ranks().size() == 1) return phase();
  const ml_status status = answered(phase);
  group.meet(call, status, status == ML_OK ? "" : last_failure());
}

/// What follows the door of a call. An error here, as of MPI, is one rank's alone and leaves the others
/// elsewhere: the group refuses from then on. Throws Refusal ML_MPI with the call's name, or ML_MEMORY.
template <typename Exchange>
void behind_door(Group& group, const Call& call, Exchange&& exchange) {
  if (group.ranks().size() == 1) return exchange();
  try {
    exchange();
  } catch (const AgreedError&) {
    throw;
  } catch (const ConfigError&) {
    throw;  // of what all ranks have alike
  } catch (...) {
    const ml_status status = keep_failure();
    const std::string text = "in " + call.what + call.of + ": " + last_failure();
    group.door().break_off(text, status == ML_MEMORY ? ML_MEMORY : ML_MPI);
  }
}

}  // namespace moeloom::c

struct ml_group {
  std::shared_ptr<moeloom::c::Group> group;
};
