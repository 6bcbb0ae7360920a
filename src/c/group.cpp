#include "group.hpp"

#include "comm/adopt_at.hpp"
#include "moeloom/comm/session.hpp"

#include "sum.hpp"

namespace moeloom::c {

Way& Group::way(const WayKey& key) {
  std::unique_ptr<Way>& way = ways_[key];
  if (way) return *way;
  const Index size = ranks_.size();
  check(key.num_experts >= 1, [] { return "num_experts must be at least 1"; });
  if (const auto wrong = mesh_violations({1, size}, size, key.num_experts); !wrong.empty())
    throw ConfigError(wrong);
  if (key.chunks < 0) throw ConfigError({"chunks = " + std::to_string(key.chunks) + " is negative"});
  // A process alone has nobody to share memory with.
  DispatcherSettings opened = key.kind ? open_dispatcher(*key.kind, ranks_, key.num_experts)
                              : size == 1
                                  ? open_dispatcher(DispatcherKind::kAlltoall, ranks_, key.num_experts)
                                  : open_usual_dispatcher(ranks_, key.num_experts);
  opened.chunks = key.chunks;
  way = std::make_unique<Way>(ranks_, key.num_experts, opened);
  return *way;
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

void Group::release() {
  workspace_ = MoeWorkspace();
  const std::lock_guard lock(mutex_);
  trips_.clear();
}

namespace {

/// Not ended where the process ends without ml_mpi_end(): MPI_Finalize would wait for the others.
std::unique_ptr<Session>& session() {
  static auto* const held = new std::unique_ptr<Session>;
  return *held;
}

ml_group* made(Communicator ranks) {
  return std::make_unique<ml_group>(std::make_shared<Group>(std::move(ranks))).release();
}

template <typename Open>
ml_status open(ml_group** group, Open&& open) {
  if (group != nullptr) *group = nullptr;
  return guarded([&] { given(group, "group") = made(open()); });
}

Group& group_of(ml_group* group) {
  return *given(group, "group").group;
}

void split(const Communicator& world, Index ep, ml_group*& ep_row, ml_group*& dp_column) {
  if (const auto wrong = mesh_violations({0, ep}, world.size(), 0); !wrong.empty()) throw ConfigError(wrong);
  const auto ranks = static_cast<int>(ep);
  const int row = world.rank() / ranks, column = world.rank() % ranks;
  Communicator along = world.split(row, column), down = world.split(column, row);
  ep_row = made(std::move(along));
  dp_column = made(std::move(down));
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_mpi_start(void) {
  return guarded([&] {
    int argc = 0;
    char** argv = nullptr;
    session() = std::make_unique<moeloom::Session>(argc, argv, moeloom::MpiThreads::kByTurns);
  });
}

ml_status ml_mpi_end(void) {
  return guarded([] { session().reset(); });
}

int32_t ml_mpi_running(void) {
  return moeloom::mpi_runs() ? 1 : 0;
}

void ml_abort(int32_t exit_code) {
  moeloom::abort_all_ranks(exit_code);
}

ml_status ml_group_open(const void* mpi_comm, ml_group** group) {
  return open(group, [&] {
    return mpi_comm == nullptr ? moeloom::Communicator::self() : moeloom::adopt_at(mpi_comm);
  });
}

ml_status ml_group_world(ml_group** group) {
  return open(group, [] { return moeloom::adopt_at(nullptr); });
}

ml_status ml_group_mesh(ml_group* world, int64_t ep, ml_group** ep_row, ml_group** dp_column) {
  if (ep_row != nullptr) *ep_row = nullptr;
  if (dp_column != nullptr) *dp_column = nullptr;
  return guarded([&] {
    Group& all = group_of(world);
    const Use use(all.busy());
    split(all.ranks(), ep, given(ep_row, "ep_row"), given(dp_column, "dp_column"));
  });
}

int64_t ml_group_rank(const ml_group* group) {
  return group == nullptr ? 0 : group->group->ranks().rank();
}

int64_t ml_group_size(const ml_group* group) {
  return group == nullptr ? 1 : group->group->ranks().size();
}

ml_status ml_group_experts(const ml_group* group, int64_t num_experts, int64_t* begin, int64_t* count) {
  return guarded([&] {
    const auto held = moeloom::experts_of(num_experts, ml_group_size(group), ml_group_rank(group));
    given(begin, "begin") = held.begin;
    given(count, "count") = held.count;
  });
}

ml_status ml_group_sum(ml_group* group, const ml_array* const* arrays, int64_t count, double scale) {
  return guarded([&] {
    Group& all = group_of(group);
    const Use use(all.busy());
    sum_over(all.ranks(), std::span(arrays, moeloom::at(count)), scale);
  });
}

ml_status ml_group_barrier(ml_group* group) {
  return guarded([&] {
    Group& all = group_of(group);
    const Use use(all.busy());
    all.ranks().barrier();
  });
}

ml_status ml_group_agree(ml_group* group, const char* error) {
  return guarded([&] {
    Group& all = group_of(group);
    const Use use(all.busy());
    try {
      throw_if_any_failed(all.ranks(), error == nullptr ? "" : error);
    } catch (const moeloom::AgreedError& agreed) {
      throw Refusal(ML_OTHER, agreed.what());
    }
  });
}

ml_status ml_group_release(ml_group* group) {
  return guarded([&] {
    Group& all = group_of(group);
    const Use use(all.busy());
    all.release();
  });
}

void ml_group_close(ml_group* group) {
  close(group);
}
