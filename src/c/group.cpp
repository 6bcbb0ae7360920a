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

bool is_thread_of_mpi() {
  try {
    require_thread_of_mpi();
    return true;
  } catch (const MpiError&) {
    return false;
  }
}

}  // namespace

/// Whose communicators are to be freed; a chain, because what waits must not need memory.
struct EndedGroups {
  std::unique_ptr<Group> last;
  void add(std::unique_ptr<Group> group) {
    group->ended_before_ = std::move(last);
    last = std::move(group);
  }
  void free() {
    while (last) last = std::move(last->ended_before_);
  }
};

namespace {

/// Who calls MPI, and whether several may: known from the first turn on, because MPI, which may end, is not
/// asked beside a program's own calls.
struct MpiUse {
  std::mutex mutex;
  Index turns = 0;
  bool ends = false;
  bool is_for_several = false;
  EndedGroups ended;
};

/// Not ended with the process: what waits in it would call MPI.
MpiUse& mpi_use() {
  static auto* const held = new MpiUse;
  return *held;
}

void end(Group* group) noexcept {
  std::unique_ptr<Group> ends(group);
  if (!ends->members()->of_mpi) return;
  ends->release();
  MpiUse& use = mpi_use();
  const std::lock_guard lock(use.mutex);
  use.ended.add(std::move(ends));
  if (!use.ends && (use.is_for_several || !mpi_runs())) use.ended.free();
}

}  // namespace

std::shared_ptr<Group> held(std::unique_ptr<Group> group) {
  return {group.release(), end};
}

Members::Members(Communicator members, bool are_of_mpi, std::vector<Index> numbers, Index all,
                 Index most_on_a_node)
    : ranks(std::move(members)),
      of_mpi(are_of_mpi),
      door(ranks, std::move(numbers), all),
      ranks_per_node(most_on_a_node) {}

Group::Group(Communicator ranks, bool of_mpi) {
  const Index size = ranks.size(), most = most_on_a_node(ranks);
  members_ = std::make_shared<Members>(std::move(ranks), of_mpi, first_numbers(size), size, most);
}

Group::Group(Communicator ranks, const Group& whole, std::vector<Index> numbers)
    : members_(std::make_shared<Members>(std::move(ranks), whole.members_->of_mpi, std::move(numbers),
                                         whole.ranks().size(), whole.members_->ranks_per_node)) {
  door().set_timeout(whole.members_->door.timeout());
}

std::shared_ptr<Members> Group::row() const {
  const std::lock_guard lock(mutex_);
  return row_;
}

void Group::set_row(std::shared_ptr<Members> row) {
  door().set_behind_another(row->ranks.size() > 1);
  const std::lock_guard lock(mutex_);
  row_ = std::move(row);
}

void Group::set_timeout(double seconds) {
  door().set_timeout(seconds);
  const std::lock_guard lock(mutex_);  // a row that is replaced meanwhile ends with who replaces it
  if (row_) row_->door.set_timeout(seconds);
}

void Group::meet(const Call& call, ml_status status, const std::string& error) {
  if (row_ && row_->ranks.size() > 1 && ranks().size() > 1) row_->door.meet({call.what});
  if (ranks().size() > 1) return door().meet(call, status, error);
  if (status != ML_OK) throw Refusal(status, error);
}

const RunFacts& Group::row_facts(Index pretended_nodes) {
  const auto known = row_facts_.find(pretended_nodes);
  if (known != row_facts_.end()) return known->second;
  const Layout layout{
      .ranks_per_node = members_->ranks_per_node, .threads = threads(), .pretended_nodes = pretended_nodes};
  return row_facts_[pretended_nodes] = find_row_facts(ranks(), layout);
}

Way& Group::way(const WayKey& key) {
  std::unique_ptr<Way>& way = ways_[key];
  if (way) return *way;
  DispatcherSettings opened =
      open_dispatcher(key.kind, ranks(), key.num_experts, {.pretended_nodes = key.pretended_nodes});
  opened.chunks = key.chunks;
  way = std::make_unique<Way>(ranks(), key.num_experts, opened);
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

MpiTurn::MpiTurn(For purpose) {
  MpiUse& use = mpi_use();
  const std::lock_guard lock(use.mutex);
  if (use.ends) throw Refusal(ML_IN_USE, "another thread ends MPI");
  const bool has_mpi = mpi_runs();
  if (has_mpi && purpose == For::kCall) require_thread_of_mpi();
  if (use.turns > 0 && !use.is_for_several)
    throw Refusal(ML_IN_USE,
                  "another thread is in a call of another group, and MPI was started for one thread at a "
                  "time; start it at MPI_THREAD_MULTIPLE, or call by turns");
  if (use.turns > 0 && purpose == For::kEnd)
    throw Refusal(ML_IN_USE, "another thread is in a call on ranks; MPI ends when it has returned");
  if (!has_mpi || purpose == For::kCall || is_thread_of_mpi()) use.ended.free();
  if (!has_mpi) return;
  use.is_for_several = mpi_is_for_several_threads();
  ++use.turns;
  use.ends = purpose == For::kEnd;
  has_mpi_ = true;
}

MpiTurn::~MpiTurn() {
  if (!has_mpi_) return;
  MpiUse& use = mpi_use();
  const std::lock_guard lock(use.mutex);
  --use.turns;
  use.ends = false;
}

Turn::Turn(Group& group, bool splits) : own_(group.members()->busy), row_(group.row()) {
  if (row_) of_row_.emplace(row_->busy);
  if (group.ranks().size() == 1 && !(splits && group.members()->of_mpi)) return;
  of_mpi_.emplace();
  if (!of_mpi_->has_mpi()) throw Refusal(ML_MPI, "MPI has ended, and the ranks of the group with it");
}

void Group::release() {
  workspace_ = MoeWorkspace();
  const std::lock_guard lock(mutex_);
  trips_.clear();
}

}  // namespace moeloom::c
