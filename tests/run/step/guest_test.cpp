// What a process is left with when runs, models and blocks in it have come and gone: what it had before.
#include "comm/process_memory.hpp"
#include "moeloom/moe/expert_parallel.hpp"
#include "moeloom/run/asking.hpp"
#include "moeloom/run/model.hpp"
#include "moeloom/run/training.hpp"

#include <algorithm>
#include <fstream>
#include <set>

#include "small_run.hpp"
#include "support/sanitized.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using testing::small_model;

using Guest = testing::SmallRun;

constexpr int kTimes = 10;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

/// Pages that others could map too.
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/shm/") != line.npos || line.find("/memfd:") != line.npos) ++found;
  return found;
}

/// Of this process: open files, threads, and memory that it could share.
struct Belongings {
  std::size_t files = names_in("/proc/self/fd").size();
  std::size_t tasks = names_in("/proc/self/task").size();
  std::size_t shared = shared_mappings();
  bool operator==(const Belongings&) const = default;
};

/// do_it() the first two times for what a process keeps once and for all, then eight times more.
template <typename Work>
void expect_to_leave_nothing(Work do_it) {
  for (int time = 0; time < 2; ++time) do_it(time);
  const Belongings before;
  const Index bytes = private_bytes();
  for (int time = 2; time < kTimes; ++time) do_it(time);
  EXPECT_EQ(Belongings().files, before.files);
  EXPECT_EQ(Belongings().tasks, before.tasks);
  EXPECT_EQ(Belongings().shared, before.shared);
  // A sanitizer keeps what was freed, and tells of what was not.
  if (!testing::kSanitized) {
    EXPECT_LT(private_bytes() - bytes, Index{2} << 20) << "bytes that eight more of them kept";
  }
}

TEST_F(Guest, RunsAndAnswersLeaveNothingBehind) {
  expect_to_leave_nothing([&](int time) {
    Training training(Communicator::self(), options(std::to_string(time)));
    while (training.step()) continue;
    EXPECT_EQ(training.finish(), RunEnd::kDone);
    AskOptions asked;
    asked.model = folder_ / std::to_string(time);
    EXPECT_FALSE(Asking(Communicator::self(), asked).generate("And ", {.tokens = 4}).empty());
  });
}

TEST_F(Guest, ARunThatIsGivenUpLeavesNothingEither) {
  expect_to_leave_nothing([&](int time) {
    Training training(Communicator::self(), options(std::to_string(time)));
    training.step();
    TrainOptions wrong = options(std::to_string(time));
    wrong.mesh.ep = 3;
    EXPECT_ANY_THROW(Training(Communicator::self(), wrong));
  });
}

TEST_F(Guest, ModelsAndBlocksLeaveNothingBehind) {
  expect_to_leave_nothing([&](int) {
    Model model(Mesh::single(), small_model(), {.batch = {.sequences = 1, .length = 2}});
    model.step({{.sequences = 1, .sequence_length = 2, .input_ids = {1, 2}, .targets = {2, 3}}});
    const Communicator self = Communicator::self();
    ExpertParallel over(self, 2);
    Matrix router(2, 4), gate_up(2 * 2 * 3, 4), down(2 * 4, 3), x(5, 4), output(5, 4);
    SparseBlock block(over, {router}, softmax_router(2, 1), {gate_up, down});
    block.forward(x, output);
    EXPECT_EQ(block.rows(), 5);
  });
}

}  // namespace
}  // namespace moeloom
