// `moeloom train --node-pool`, whole commands.

#include <csignal>
#include <future>

#include "program/program_testing.hpp"
#include "support/files.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using namespace std::chrono_literals;
using testing::count_of;
using testing::on_ranks;
using testing::Outcome;
using testing::ranks_with;
using testing::shell;
using testing::soon;

class NodePoolCommand : public testing::ProgramTest {
 protected:
  std::string weights(const std::string& run) const {
    return testing::read_bytes(path(run) + "/checkpoint-4/model.safetensors");
  }
  Index tasks_in(const std::string& run) const {
    return read_metrics(path(run) + "/metrics.jsonl").back().pool_tasks;
  }
};

TEST_F(NodePoolCommand, TrainsTheSameLossesAndCheckpointByFlagAndByEnvironment) {
  struct Case {
    const char* run;
    const char* environment;
    const char* flags;
    bool pool;
  };
  const std::vector<Case> cases = {
      {"own", "", "--dispatcher alltoall", false},
      {"pool", "", "--node-pool", true},
      {"threads", "", "--node-pool on --threads 2", true},
      {"environment", "MOELOOM_NODE_POOL=1 ", "", true},
      {"flag wins", "MOELOOM_NODE_POOL=1 ", "--node-pool off", false},
      {"nodes", "MOELOOM_PRETEND_NODES=2 ", "--node-pool", true},
  };
  for (const Case& c : cases) {
    const int ranks = c.run == std::string("nodes") ? 4 : 2;
    const std::string own = ranks == 4 ? "own of four" : "own";
    if (ranks == 4) {
      ASSERT_EQ(shell(train(4, "--ep 4 --steps 4 --run '" + path(own) + "'")).exit_code, 0);
    }
    const Outcome run =
        shell(c.environment + train(ranks, "--ep " + std::to_string(ranks) + " --steps 4 --run '" +
                                               path(c.run) + "' " + c.flags));
    ASSERT_EQ(run.exit_code, 0) << c.run << ": " << run.output;
    EXPECT_EQ(count_of(run.output, "node_pool=yes"), c.pool ? 1u : 0u) << c.run << ": " << run.output;
    EXPECT_EQ(losses(c.run), losses(own)) << c.run;
    EXPECT_EQ(weights(c.run), weights(own)) << c.run;
    EXPECT_EQ(tasks_in(c.run) > 0, c.pool) << c.run;
  }
}

TEST_F(NodePoolCommand, WhereItCannotRunItIsRefusedWithTheReason) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {train(2, "--ep 1 --node-pool"), "has nobody to share experts with: ep = 1"},
      {train(2, "--ep 2 --node-pool --dispatcher alltoall"), "needs rows in the node's memory"},
      {train(2, "--ep 2 --node-pool=maybe"), "--node-pool = \"maybe\": expected one of 1, true"},
      {"MOELOOM_PRETEND_NODES=2 " + train(2, "--ep 2 --node-pool"), "lie on as many nodes"},
      {train(1, "--experts 0 --dense-inter 16 --node-pool"), "this model has no experts"}};
  for (const auto& [command, said] : cases) {
    const Outcome refused = shell(command);
    EXPECT_NE(refused.exit_code, 0) << command;
    EXPECT_EQ(count_of(refused.output, said), 1u) << command << "\n" << refused.output;
  }
}

TEST_F(NodePoolCommand, ARunGoesOnWithOrWithoutIt) {
  const auto must_run = [](const std::string& command) {
    const Outcome run = shell(command);
    ASSERT_EQ(run.exit_code, 0) << command << "\n" << run.output;
  };
  must_run(train(2, "--ep 2 --steps 4 --dispatcher alltoall --run " + path("own")));
  must_run(train(2, "--ep 2 --steps 2 --schedule-steps 4 --node-pool --run " + path("mixed")));
  const std::string resumed = on_ranks(2) + "train --resume " + path("mixed");
  must_run(resumed + " --steps 3 --node-pool off");
  EXPECT_EQ(tasks_in("mixed"), 0);
  must_run(resumed + " --steps 4 --node-pool");
  EXPECT_GT(tasks_in("mixed"), 0);
  EXPECT_EQ(losses("mixed"), losses("own"));
  EXPECT_EQ(weights("mixed"), weights("own"));
}

TEST_F(NodePoolCommand, AKilledRankEndsTheJob) {
  const std::string endless =
      train(2, "--ep 2 --node-pool --steps 1000000 --save-every 0 --log-every 1000000");
  std::future<Outcome> job = std::async(std::launch::async, [&] { return shell(endless); });
  const auto steps_are_done = [&] {
    std::error_code none_yet;
    return fs::file_size(path("run/metrics.jsonl"), none_yet) > 0 && !none_yet;
  };
  EXPECT_TRUE(soon(60s, steps_are_done));
  const std::vector<pid_t> ranks = ranks_with(path("run"));
  EXPECT_EQ(ranks.size(), 2u);
  if (!ranks.empty()) kill(ranks.back(), SIGKILL);
  const Outcome killed = job.get();
  EXPECT_NE(killed.exit_code, 0) << killed.output;
  EXPECT_TRUE(soon(10s, [&] { return ranks_with(path("run")).empty(); }))
      << "the other rank waits for the dead";
}

}  // namespace
}  // namespace moeloom
