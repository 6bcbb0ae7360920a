// Ranks: the start and the end of MPI, and groups as handles.
#include "comm/adopt_at.hpp"
#include "moeloom/comm/session.hpp"

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "group.hpp"
#include "sum.hpp"

namespace moeloom::c {
namespace {

/// Not ended where the process ends without ml_mpi_end(): MPI_Finalize would wait for the others.
struct Started {
  std::unique_ptr<Session> session;
  std::atomic<bool> is_ours = false;  // until MPI has ended
};

Started& started() {
  static auto* const held = new Started;
  return *held;
}

ml_group* handle_of(std::shared_ptr<Group> group) {
  return std::make_unique<ml_group>(std::move(group)).release();
}

template <typename Open>
ml_status open(ml_group** group, bool of_mpi, Open&& open) {
  if (group != nullptr) *group = nullptr;
  return guarded([&] {
    std::shared_ptr<Group> opened = held(std::make_unique<Group>(open(), of_mpi));  // with the other ranks
    ml_group*& to = given(group, "group");
    to = handle_of(std::move(opened));
  });
}

Group& group_of(ml_group* group) {
  return *given(group, "group").group;
}

struct Halves {
  std::shared_ptr<Group> row, column;
};

/// Of the ranks of a whole, [size] numbers from `first` on, so far apart.
std::vector<Index> numbers_of(Index first, Index apart, Index size) {
  std::vector<Index> numbers;
  for (Index i = 0; i < size; ++i) numbers.push_back(first + i * apart);
  return numbers;
}

/// row_to, column_to: where handles go, which may be missing on one rank alone.
Halves divided(Group& all, Index ep, ml_group** row_to, ml_group** column_to) {
  const Communicator& world = all.ranks();
  in_agreement(all, {"a mesh of ep = " + std::to_string(ep)}, [&] {
    if (const auto wrong = mesh_violations({0, ep}, world.size(), 0); !wrong.empty())
      throw ConfigError(wrong);
    given(row_to, "ep_row");
    given(column_to, "dp_column");
  });
  const Index row = world.rank() / ep, column = world.rank() % ep;
  const auto part = [&](Index color, Index key, std::vector<Index> numbers) {
    return held(std::make_unique<Group>(world.split(static_cast<int>(color), static_cast<int>(key)), all,
                                        std::move(numbers)));
  };
  Halves parts;
  parts.row = part(row, column, numbers_of(row * ep, 1, ep));
  parts.column = part(column, row, numbers_of(column, ep, world.size() / ep));
  for (Group* group : {&all, parts.column.get()}) group->set_row(parts.row->members());
  return parts;
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_mpi_start(void) {
  return guarded([&] {
    int argc = 0;
    char** argv = nullptr;
    started().session = std::make_unique<moeloom::Session>(argc, argv, moeloom::MpiThreads::kByTurns);
    started().is_ours = true;
  });
}

ml_status ml_mpi_end(void) {
  return guarded([] {
    if (!started().is_ours) return;
    const MpiTurn turn(MpiTurn::For::kEnd);
    started().session.reset();
    started().is_ours = false;
  });
}

int32_t ml_mpi_running(void) {
  return moeloom::mpi_runs() ? 1 : 0;
}

void ml_abort(int32_t exit_code) {
  moeloom::abort_all_ranks(exit_code);
}

ml_status ml_group_open(const void* mpi_comm, ml_group** group) {
  return open(group, mpi_comm != nullptr, [&] {
    if (mpi_comm == nullptr) return moeloom::Communicator::self();
    const MpiTurn turn;
    return moeloom::adopt_at(mpi_comm);
  });
}

ml_status ml_group_world(ml_group** group) {
  return open(group, true, [] {
    const MpiTurn turn;
    return moeloom::adopt_at(nullptr);
  });
}

ml_status ml_group_mesh(ml_group* world, int64_t ep, ml_group** ep_row, ml_group** dp_column) {
  if (ep_row != nullptr) *ep_row = nullptr;
  if (dp_column != nullptr) *dp_column = nullptr;
  return guarded([&] {
    Group& all = group_of(world);
    const Turn turn(all, true);
    Halves parts = divided(all, ep, ep_row, dp_column);
    *ep_row = handle_of(std::move(parts.row));
    *dp_column = handle_of(std::move(parts.column));
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
    check(num_experts >= 0, [] { return "num_experts must not be negative"; });
    const auto held = moeloom::experts_of(num_experts, ml_group_size(group), ml_group_rank(group));
    given(begin, "begin") = held.begin;
    given(count, "count") = held.count;
  });
}

ml_status ml_group_set_timeout(ml_group* group, double seconds) {
  return answered([&] {
    check(seconds >= 0, [] { return "a time limit is a number of seconds, or 0 for none"; });
    group_of(group).set_timeout(seconds);
  });
}

ml_status ml_group_sum(ml_group* group, const ml_array* const* arrays, int64_t count, double scale) {
  return guarded([&] {
    Group& all = group_of(group);
    const Turn turn(all);
    std::span<const ml_array* const> asked;
    Call call{.what = "a sum"};
    const ml_status status = answered([&] {
      check(count >= 0, [&] { return "there are " + std::to_string(count) + " arrays to sum"; });
      check(arrays != nullptr || count == 0, [] { return "arrays is NULL"; });
      asked = {arrays, moeloom::at(count)};
      call.of = text_of_sum(asked);
    });
    all.meet(call, status, status == ML_OK ? "" : last_failure());
    behind_door(all, call, [&] { sum_over(all.ranks(), asked, scale); });
  });
}

ml_status ml_group_enter(ml_group* group, const char* call, const char* error) {
  return guarded([&] {
    Group& all = group_of(group);
    const Turn turn(all);
    if (const ml_status status = answered([&] { given(call, "call"); }); status != ML_OK)
      return all.meet({"a call without a name"}, status, last_failure());
    const std::string text = error == nullptr ? "" : error;
    all.meet({call}, text.empty() ? ML_OK : ML_OTHER, text);
  });
}

ml_status ml_group_barrier(ml_group* group) {
  return ml_group_enter(group, "a barrier", nullptr);
}

ml_status ml_group_agree(ml_group* group, const char* error) {
  return ml_group_enter(group, "agree", error);
}

ml_status ml_group_gather_text(ml_group* group, const char* text) {
  return guarded([&] {
    Group& all = group_of(group);
    const Turn turn(all);
    const Call call{"a gathering of texts"};
    in_agreement(all, call, [&] { given(text, "text"); });
    behind_door(all, call, [&] { all.texts() = all.ranks().all_gather_text(text); });
  });
}

const char* ml_group_text(const ml_group* group, int64_t rank) {
  if (group == nullptr) return "";
  const std::vector<std::string>& texts = group->group->texts();
  return rank < 0 || rank >= std::ssize(texts) ? "" : texts[moeloom::at(rank)].c_str();
}

ml_status ml_group_release(ml_group* group) {
  return guarded([&] {
    Group& all = group_of(group);
    const Use use(all.members()->busy);
    all.release();
  });
}

void ml_group_close(ml_group* group) {
  close(group);
}
