#include "group.hpp"

#include "comm/adopt_at.hpp"
#include "comm/node_map.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom::c {
namespace {

Index most_on_a_node(const Communicator& ranks) {
  const NodeMap* nodes = ranks.nodes();
  if (nodes == nullptr) return ranks.size();
  std::size_t most = 0;
  for (const std::vector<Index>& members : nodes->members) most = std::max(most, members.size());
  return static_cast<Index>(most);
}

std::vector<Index> first_numbers(Index count) {
  std::vector<Index> numbers(at(count));
  std::iota(numbers.begin(), numbers.end(), Index{0});
  return numbers;
}

/// Of MPI, where it is of one thread at a time.
struct MpiUse {
  std::mutex mutex;
  bool taken = false;
  std::vector<std::unique_ptr<Group>> ended;  // whose communicators are to be freed
};

/// Not ended with the process: what waits in it would call MPI.
MpiUse& mpi_use() {
  static auto* const held = new MpiUse;
  return *held;
}

bool is_thread_of_mpi() {
  try {
    require_thread_of_mpi();
    return true;
  } catch (const MpiError&) {
    return false;
  }
}

void end(Group* group) noexcept {
  const std::shared_ptr<Group> row = group->give_up_row();  // it ends after this one, by itself
  std::unique_ptr<Group> ends(group);
  if (!group->is_of_mpi() || !mpi_runs() || mpi_is_for_several_threads()) return;
  MpiUse& use = mpi_use();
  const std::lock_guard lock(use.mutex);
  if (use.taken || !is_thread_of_mpi())
    use.ended.push_back(std::move(ends));
  else
    ends.reset();  // with the lock, for which a turn waits
}

}  // namespace

std::shared_ptr<Group> held(std::unique_ptr<Group> group) {
  return {group.release(), end};
}

Group::Group(Communicator ranks, bool of_mpi)
    : ranks_(std::move(ranks)),
      of_mpi_(of_mpi),
      door_(ranks_, first_numbers(ranks_.size()), ranks_.size()),
      ranks_per_node_(most_on_a_node(ranks_)) {}

Group::Group(Communicator ranks, const Group& whole, std::vector<Index> numbers)
    : ranks_(std::move(ranks)),
      of_mpi_(whole.of_mpi_),
      door_(ranks_, std::move(numbers), whole.ranks_.size()),
      ranks_per_node_(whole.ranks_per_node_) {
  door_.set_timeout(whole.door_.timeout());
}

void Group::set_row(std::shared_ptr<Group> row) {
  row_ = std::move(row);
  if (row_->ranks_.size() > 1) door_.set_behind_another();
}

void Group::set_timeout(double seconds) {
  door_.set_timeout(seconds);
  if (row_) row_->door_.set_timeout(seconds);
}

void Group::meet(const Call& call, ml_status status, const std::string& error) {
  if (row_ && row_->ranks_.size() > 1 && ranks_.size() > 1) row_->door_.meet({call.what});
  if (ranks_.size() > 1) return door_.meet(call, status, error);
  if (status != ML_OK) throw Refusal(status, error);
}

const RunFacts& Group::row_facts(Index pretended_nodes) {
  const auto known = row_facts_.find(pretended_nodes);
  if (known != row_facts_.end()) return known->second;
  const Layout layout{
      .ranks_per_node = ranks_per_node_, .threads = threads(), .pretended_nodes = pretended_nodes};
  return row_facts_[pretended_nodes] = find_row_facts(ranks_, layout);
}

Way& Group::way(const WayKey& key) {
  std::unique_ptr<Way>& way = ways_[key];
  if (way) return *way;
  DispatcherSettings opened =
      open_dispatcher(key.kind, ranks_, key.num_experts, {.pretended_nodes = key.pretended_nodes});
  opened.chunks = key.chunks;
  way = std::make_unique<Way>(ranks_, key.num_experts, opened);
  return *way;
}

bool Group::owns(const Way& way) const {
  return std::ranges::any_of(ways_, [&](const auto& each) { return each.second.get() == &way; });
}

std::unique_ptr<TripMemory> Group::take_trip() {
  const std::lock_guard lock(mutex_);
  if (trips_.empty()) return std::make_unique<TripMemory>();
  std::unique_ptr<TripMemory> trip = std::move(trips_.back());
  trips_.pop_back();
  return trip;
}

void Group::give_back(std::unique_ptr<TripMemory> trip) {
  const std::lock_guard lock(mutex_);
  trips_.push_back(std::move(trip));
}

MpiTurn::MpiTurn() {
  if (!mpi_runs() || mpi_is_for_several_threads()) return;
  MpiUse& use = mpi_use();
  const std::lock_guard lock(use.mutex);
  if (use.taken)
    throw Refusal(ML_IN_USE,
                  "another thread is in a call of another group, and MPI was started for one thread at a "
                  "time; start it at MPI_THREAD_MULTIPLE, or call by turns");
  if (is_thread_of_mpi()) use.ended.clear();
  use.taken = taken_ = true;
}

MpiTurn::~MpiTurn() {
  if (!taken_) return;
  MpiUse& use = mpi_use();
  const std::lock_guard lock(use.mutex);
  use.taken = false;
}

Turn::Turn(Group& group, bool splits) : own_(group.busy()), row_(group.row()) {
  if (row_) of_row_.emplace(row_->busy());
  if (group.ranks().size() == 1 && !(splits && group.is_of_mpi())) return;
  if (!mpi_runs()) throw Refusal(ML_MPI, "MPI has ended, and the ranks of the group with it");
  require_thread_of_mpi();
  of_mpi_.emplace();
}

void Group::release() {
  workspace_ = MoeWorkspace();
  const std::lock_guard lock(mutex_);
  trips_.clear();
}

}  // namespace moeloom::c
