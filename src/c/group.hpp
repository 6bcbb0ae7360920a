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

#include "guard.hpp"

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
  std::optional<DispatcherKind> kind = {};  // none: as open_usual_dispatcher() decides
  Index chunks = 0;
  auto operator<=>(const WayKey&) const = default;
};

/// What a forward leaves, and the memory of it.
struct TripMemory {
  RoutedExperts experts{ExpertShard{}};
  Way* way = nullptr;
  std::vector<std::int32_t> topk_idx = {};
  std::vector<float> topk_weights = {};
  Index top_k = 0, tokens = 0, width = 0;
  bool in_bf16 = false;
  ChosenExperts chosen() const { return {topk_idx, topk_weights, top_k}; }
};

/// Neither moves: dispatchers point to `ranks`.
class Group {
 public:
  explicit Group(Communicator ranks) : ranks_(std::move(ranks)) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const Communicator& ranks() const { return ranks_; }
  std::atomic<bool>& busy() { return busy_; }
  /// Collective over the ranks, in its first call with a key. Throws ConfigError, AgreedError.
  Way& way(const WayKey& key);
  MoeWorkspace& workspace() { return workspace_; }
  PhaseClock& clock() { return clock_; }

  /// The last one that came back, whose pages are warmest, or a new one.
  std::unique_ptr<TripMemory> take_trip();
  /// From any thread.
  void give_back(std::unique_ptr<TripMemory> trip);
  /// Buffers and trips that wait are freed.
  void release();

 private:
  Communicator ranks_;
  std::atomic<bool> busy_ = false;
  std::map<WayKey, std::unique_ptr<Way>> ways_;
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::mutex mutex_;  // of trips_
  std::vector<std::unique_ptr<TripMemory>> trips_;
};

/// `phase`, which may fail on one rank alone; then every rank throws, with the text and the ranks of it. The
/// status of a rank that failed is its own. Collective over the ranks.
template <typename Phase>
void in_agreement(const Communicator& ranks, Phase&& phase) {
  if (ranks.size() == 1) return phase();
  ml_status status = ML_CONFIG;
  try {
    agree(ranks, [&] {
      status = ML_OTHER;
      status = guarded(phase);
      if (status != ML_OK) throw Error(last_failure());
    });
  } catch (const AgreedError& error) {
    throw Refusal(status == ML_OK ? ML_CONFIG : status, error.what());
  }
}

}  // namespace moeloom::c

struct ml_group {
  std::shared_ptr<moeloom::c::Group> group;
};
