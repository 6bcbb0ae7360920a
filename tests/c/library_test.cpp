// What holds for every function: statuses with texts, threads, forks, and nothing of the process changed.
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/version.hpp"
#include "moeloom/kernels/gmm_policy.hpp"

#include <atomic>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "layer.hpp"
#include "support/sanitized.hpp"

namespace moeloom {
namespace {

using namespace testing;

TEST(CLibrary, SaysWhatItIs) {
  EXPECT_EQ(ml_abi(), ML_ABI);
  EXPECT_STREQ(ml_version(), kVersion);
  char text[4096], cut[8];
  EXPECT_OK(ml_machine(text, sizeof(text)));
  for (const char* word : {"\"version\": \"", "\"level\": \"", "\"blas\": \"OpenBLAS", "\"mpi\": \"",
                           "\"mpi_running\": false", "\"threads\": "})
    EXPECT_NE(std::string(text).find(word), std::string::npos) << text;
  EXPECT_OK(ml_machine(cut, sizeof(cut)));
  EXPECT_EQ(std::string(cut), std::string(text).substr(0, 7));
  EXPECT_STATUS(ml_machine(nullptr, 0), ML_SHAPE, "memory");
}

TEST(CLibrary, ErrorsAreOfTheirThread) {
  EXPECT_STATUS(ml_machine(nullptr, 0), ML_SHAPE, "memory");
  std::string other = "unset";
  std::thread([&] { other = ml_last_error(); }).join();
  EXPECT_EQ(other, "");
}

TEST(CLibrary, HasThreadsOfItsOwn) {
  const int before = threads();
  const int wanted = before + 2;
  EXPECT_OK(ml_set_threads(wanted));
  EXPECT_EQ(ml_threads(), wanted);
  const Array x(random_matrix(300, 64, 1)), y({300, 64}), w({64});
  EXPECT_OK(ml_rmsnorm(x, nullptr, w, 1e-6f, 0, y, nullptr));
  EXPECT_EQ(threads(), before) << "OpenMP's own number";
  EXPECT_OK(ml_set_threads(0));
  EXPECT_EQ(ml_threads(), before);
  EXPECT_STATUS(ml_set_threads(-1), ML_SHAPE, "threads go from 0");
}

TEST(CLibrary, ChangesNeitherSignalsNorThreadsOfOthers) {
  struct sigaction before[32], after[32];
  for (int signal = 1; signal < 32; ++signal) sigaction(signal, nullptr, &before[signal]);
  const LayerInputs in({}, 5);
  CLayer layer(in, nullptr);
  EXPECT_OK(layer.forward());
  EXPECT_OK(layer.backward(layer.grads(ML_REPLACE)));
  for (int signal = 1; signal < 32; ++signal) {
    sigaction(signal, nullptr, &after[signal]);
    EXPECT_EQ(before[signal].sa_handler, after[signal].sa_handler) << signal;
  }
  EXPECT_EQ(ml_mpi_running(), 0);
}

TEST(CLibrary, RefusesTheChildOfAFork) {
  const Array x(random_matrix(3, 8, 1)), y({3, 8}), w({8});
  EXPECT_OK(ml_rmsnorm(x, nullptr, w, 1e-6f, 0, y, nullptr));
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = ml_rmsnorm(x, nullptr, w, 1e-6f, 0, y, nullptr) == ML_OTHER &&
                         std::string(ml_last_error()).find("was forked from") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CLibrary, AGroupIsOfOneThreadAtATime) {
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_open(nullptr, &group));
  const LayerInputs in({.experts = 4, .hidden = 256, .inter = 128, .top_k = 2}, 512);
  std::atomic<bool> refused = false, failed = false;
  {
    CLayer layer(in, group);
    std::jthread other([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const ml_status status = ml_group_barrier(group);
        refused = refused || status == ML_IN_USE;
        failed = failed || (status != ML_OK && status != ML_IN_USE);
      }
    });
    for (int tries = 0; tries < 2000 && !refused; ++tries) {
      const ml_status status = layer.forward();
      refused = refused || status == ML_IN_USE;
      ml_trip_free(std::exchange(layer.trip, nullptr));
    }
  }
  EXPECT_TRUE(refused);
  EXPECT_FALSE(failed);
  ml_group_close(group);
}

TEST(CLibrary, SaysWhenThereIsNoMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator ends the program";
  const Array rows({1, 3}), order = Array::integers({0}, {1}), y({1, 3});
  constexpr Index kMany = Index{1} << 45;  // slots of a token
  EXPECT_STATUS(ml_unpermute(rows, order, nullptr, kMany, y), ML_MEMORY, "memory");
}

TEST(CLibrary, DecidesAsThePolicyDoes) {
  char reason[512];
  std::int32_t applies = -1;
  ml_gmm_facts facts{sizeof(ml_gmm_facts), 1, 4, 64, 32, 0, 100, 0};
  EXPECT_OK(ml_decide_gmm("1", &facts, &applies, reason, sizeof(reason)));
  EXPECT_EQ(applies, 0);
  EXPECT_EQ(std::string(reason), decide_gmm(GmmRequest::kUpstreamRule, {.ep_size = 1}).reason);
  facts.ep = 2;
  EXPECT_OK(ml_decide_gmm(" 1 ", &facts, &applies, reason, sizeof(reason)));
  EXPECT_EQ(applies, 1);
  EXPECT_NE(std::string(reason).find("96 KiB"), std::string::npos) << reason;
  facts.budget_bytes = 1000;
  EXPECT_OK(ml_decide_gmm("1", &facts, &applies, reason, sizeof(reason)));
  EXPECT_EQ(applies, 0);
  EXPECT_OK(ml_decide_gmm("auto", &facts, &applies, reason, sizeof(reason)));
  EXPECT_EQ(applies, 1);
  EXPECT_OK(ml_decide_gmm("force", &facts, &applies, reason, sizeof(reason)));
  EXPECT_EQ(applies, 1);
  EXPECT_OK(ml_decide_gmm("0", &facts, &applies, reason, sizeof(reason)));
  EXPECT_EQ(applies, 0);
  for (const auto& [experts, hidden] : {std::pair{Index{4}, Index{1} << 40}, {Index{1} << 62, Index{1}}}) {
    ml_gmm_facts large = facts;
    large.experts = experts, large.hidden = large.intermediate = hidden;
    EXPECT_STATUS(ml_decide_gmm("1", &large, &applies, reason, sizeof(reason)), ML_SHAPE, "more bytes");
  }
  ml_gmm_facts none = facts;
  none.experts = -5;
  EXPECT_STATUS(ml_decide_gmm("1", &none, &applies, reason, sizeof(reason)), ML_SHAPE, "negative");
  EXPECT_STATUS(ml_decide_gmm("perhaps", &facts, &applies, reason, sizeof(reason)), ML_CONFIG,
                "unknown request \"perhaps\"; known: 0, 1, auto, force");
}

TEST(CLibrary, AGroupAloneNeedsNoMpi) {
  ml_group *group = nullptr, *row = nullptr, *column = nullptr;
  EXPECT_OK(ml_group_open(nullptr, &group));
  EXPECT_OK(ml_group_mesh(group, 1, &row, &column));
  EXPECT_EQ(ml_group_size(row), 1);
  ml_group_close(row);
  ml_group_close(column);
  EXPECT_STATUS(ml_group_mesh(group, 2, &row, &column), ML_CONFIG, "ep = 2 does not divide the 1 ranks");
  EXPECT_EQ(row, nullptr);
  Index begin = -1, count = -1;
  EXPECT_OK(ml_group_experts(group, 5, &begin, &count));
  EXPECT_EQ(begin, 0);
  EXPECT_EQ(count, 5);
  const Array numbers(random_matrix(3, 4, 1), Lie{ML_BF16});
  Matrix expected = numbers.numbers();
  for (float& number : expected.view().flat()) number *= 0.5f;
  const ml_array* arrays[] = {numbers};
  EXPECT_OK(ml_group_sum(group, arrays, 1, 0.5));
  expect_near(numbers.numbers(), expected, 0, "scaled");
  EXPECT_OK(ml_group_barrier(group));
  EXPECT_OK(ml_group_agree(group, nullptr));
  EXPECT_STATUS(ml_group_agree(group, "the data are gone"), ML_OTHER, "the data are gone");
  EXPECT_STATUS(ml_group_world(&row), ML_MPI, "MPI is not running");
  EXPECT_OK(ml_mpi_end());
  ml_group_close(group);
  ml_group_close(nullptr);
}

}  // namespace
}  // namespace moeloom
