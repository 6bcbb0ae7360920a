#include "plan/rates/rate_cache.hpp"

#include "io/file_lock.hpp"
#include "moeloom/io/document.hpp"

#include <filesystem>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

const GmmCase kCase{64, 32, 4, 16, 2};

GmmRates rates(double seconds) {
  return {.loop_seconds = seconds,
          .gmm_seconds = 2 * seconds,
          .packed_seconds = 1.5 * seconds,
          .pack_seconds = 3 * seconds,
          .loop_add_seconds = -seconds,  // adding may measure as the cheaper one
          .gmm_add_seconds = 0};
}

/// A clock that a test can read.
struct Machine {
  double seconds = 1.0 / 3;
  int measurements = 0;
  RateAnswer ask(const std::filesystem::path& file, const GmmCase& wanted = kCase, bool refresh = false,
                 const std::string& name = "cpu") {
    return cached_rates(file, name, wanted, refresh, [this](const GmmCase&) {
      ++measurements;
      return rates(seconds);
    });
  }
};

TEST(RateCache, MeasuresOnceAndGivesTheSameBitsAfterwards) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder / "new");
  Machine machine;
  const RateAnswer first = machine.ask(file);
  EXPECT_FALSE(first.cached);
  EXPECT_EQ(first.warning, "");
  machine.seconds = 7;
  const RateAnswer second = machine.ask(file);
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(machine.measurements, 1);
  EXPECT_EQ(second.rates.loop_seconds, 1.0 / 3);
  EXPECT_EQ(second.rates.gmm_seconds, 2.0 / 3);
  EXPECT_EQ(second.rates.packed_seconds, 0.5);
  EXPECT_EQ(second.rates.pack_seconds, rates(1.0 / 3).pack_seconds);
  EXPECT_EQ(second.rates.loop_add_seconds, -1.0 / 3);
  EXPECT_EQ(second.rates.gmm_add_seconds, 0);
}

TEST(RateCache, EachCaseAndMachineHasItsOwnAndKeepsTheOthers) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  Machine machine;
  machine.ask(file);
  std::vector<GmmCase> others(5, kCase);
  others[0].hidden = others[1].inter = others[2].experts = others[3].rows_per_expert = others[4].sources = 99;
  for (const GmmCase& other : others) EXPECT_FALSE(machine.ask(file, other).cached);
  EXPECT_FALSE(machine.ask(file, kCase, false, "another cpu").cached);
  EXPECT_EQ(machine.measurements, 7);
  for (const GmmCase& other : others) EXPECT_TRUE(machine.ask(file, other).cached);
  EXPECT_TRUE(machine.ask(file).cached);
}

TEST(RateCache, ARefreshMeasuresAndReplaces) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  Machine machine;
  machine.ask(file);
  machine.seconds = 7;
  EXPECT_FALSE(machine.ask(file, kCase, true).cached);
  const RateAnswer after = machine.ask(file);
  EXPECT_TRUE(after.cached);
  EXPECT_EQ(after.rates.loop_seconds, 7);
}

TEST(RateCache, ADamagedFileIsAWarningAndIsReplaced) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  Machine().ask(file);
  const std::string whole = read_bytes(file);
  const auto with = [&](const std::string& old, const std::string& text) {
    std::string changed = whole;
    return changed.replace(changed.find(old), old.size(), text);
  };
  const std::string key = Document::parse(whole, "file").object("rates").keys().front();
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string(100, '\0'),
        with("\"format\": 8", "\"format\": 7"), with("loop_seconds", "loops"), with("0.333", "-0.333"),
        std::string(R"({"format": 8, "rates": 5})"), R"({"format": 8, "rates": {")" + key + R"(": 5}})"}) {
    write_bytes(file, damaged);
    Machine machine;
    const RateAnswer answer = machine.ask(file);
    EXPECT_FALSE(answer.cached) << damaged;
    EXPECT_NE(answer.warning.find("gmm-rates.json"), std::string::npos) << damaged << "\n" << answer.warning;
    EXPECT_EQ(answer.rates.loop_seconds, 1.0 / 3);
    const RateAnswer healed = machine.ask(file);
    EXPECT_TRUE(healed.cached) << damaged;
    EXPECT_EQ(healed.warning, "");
  }
}

TEST(RateCache, WhatCannotBeWrittenIsAWarning) {
  const TemporaryFolder folder;
  write_bytes(folder / "in-the-way", "x");
  Machine machine;
  const RateAnswer answer = machine.ask(rate_cache_file(folder / "in-the-way"));
  EXPECT_FALSE(answer.cached);
  EXPECT_NE(answer.warning.find("in-the-way"), std::string::npos);
  EXPECT_NE(answer.warning.find("not kept"), std::string::npos);
  EXPECT_EQ(answer.rates.loop_seconds, 1.0 / 3);
}

TEST(RateCache, WithoutAFolderNothingIsKept) {
  Machine machine;
  EXPECT_TRUE(rate_cache_file({}).empty());
  EXPECT_EQ(machine.ask({}).warning, "");
  EXPECT_FALSE(machine.ask({}).cached);
  EXPECT_EQ(machine.measurements, 2);
}

TEST(RateCache, OldEntriesMakeRoomForNewOnes) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  Machine machine;
  machine.ask(file);
  Document full = Document::read(file), entries = full.object("rates");
  const Document one = entries.object(entries.keys().front());
  for (int i = 0; i < 600; ++i) entries.set("other " + std::to_string(i), one);
  full.set("rates", entries);
  full.write(file);
  GmmCase next = kCase;
  next.hidden = 128;
  machine.ask(file, next);
  EXPECT_EQ(Document::read(file).object("rates").keys().size(), 512u);
  EXPECT_TRUE(machine.ask(file, next).cached);
  EXPECT_FALSE(machine.ask(file).cached) << "the oldest went first";
}

TEST(RateCache, LeavesNothingBesideTheFileButItsLock) {
  const TemporaryFolder folder;
  Machine().ask(rate_cache_file(folder.path()));
  const std::filesystem::directory_iterator files(folder / "moeloom");
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "moeloom" / "gmm-rates.json.lock"));
}

const RateCase kSizes{.hidden = 64,
                      .heads = 4,
                      .kv_heads = 2,
                      .head_dim = 16,
                      .value_dim = 16,
                      .sequence_length = 32,
                      .experts = 8,
                      .top_k = 2,
                      .inter = 48,
                      .vocabulary = 256};

MachineRates machine_rates(Index ranks) {
  MachineRates rates{.dense_flops = {1, 2, 3, 4},
                     .attention_flops = 5,
                     .head_flops = 6,
                     .router_tokens = 7,
                     .plan_slots = 8,
                     .elementwise_bytes = 9,
                     .copy_bytes = 10,
                     .updated_elements = 1.0 / 3,
                     .expert_slowdown = 1.25,
                     .ranks = ranks,
                     .node_ranks = ranks};
  if (ranks > 1) rates.node_bytes_per_second = 11;
  return rates;
}

TEST(RateCache, WhileAnotherWritesNothingIsKept) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  Machine machine;
  machine.ask(file);
  const std::string before = read_bytes(file);
  GmmCase other = kCase;
  other.hidden = 128;
  {
    const auto lock = FileLock::take(folder / "moeloom" / "gmm-rates.json.lock");
    ASSERT_TRUE(lock && lock->held());
    const RateAnswer answer = machine.ask(file, other);
    EXPECT_FALSE(answer.cached);
    EXPECT_EQ(answer.warning, "");
    EXPECT_EQ(read_bytes(file), before);
    EXPECT_TRUE(machine.ask(file).cached) << "it can be read";
    const std::string warning = keep_machine_rates(file, "cpu", kSizes, machine_rates(1));
    EXPECT_NE(warning.find("another process writes " + file.string()), std::string::npos) << warning;
  }
  EXPECT_FALSE(machine.ask(file, other).cached);
  EXPECT_TRUE(machine.ask(file, other).cached);
}

TEST(RateCache, KeepsAMachinesRatesBesideThoseOfTheExpertsAndGivesThoseOfMostRanks) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  EXPECT_FALSE(kept_machine_rates(file, "cpu", kSizes, 8).rates);
  Machine().ask(file);
  for (const Index ranks : {1, 4, 2})
    EXPECT_EQ(keep_machine_rates(file, "cpu", kSizes, machine_rates(ranks)), "");
  const auto of = [&](Index most) { return kept_machine_rates(file, "cpu", kSizes, most).rates.value(); };
  EXPECT_EQ(of(8).ranks, 4);
  EXPECT_EQ(of(3).ranks, 2);
  EXPECT_EQ(of(3).node_bytes_per_second, 11);
  EXPECT_EQ(of(1).ranks, 1);
  EXPECT_EQ(of(1).dense_flops[3], 4);
  EXPECT_EQ(of(1).updated_elements, 1.0 / 3);
  EXPECT_EQ(of(1).expert_slowdown, 1.25);
  EXPECT_FALSE(kept_machine_rates(file, "another cpu", kSizes, 8).rates);
  RateCase other = kSizes;
  other.sequence_length = 64;
  EXPECT_FALSE(kept_machine_rates(file, "cpu", other, 8).rates);
  EXPECT_TRUE(Machine().ask(file).cached) << "the experts' rates stay";
}

TEST(RateCache, WhatSeveralNodesMeasuredServesAPlanOfOneNodesRanks) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  const auto kept = [&](Index node_ranks, Index nodes, double network_bytes_per_second) {
    MachineRates rates = machine_rates(node_ranks);
    rates.ranks = node_ranks * nodes;
    rates.network_bytes_per_second = network_bytes_per_second;
    rates.link_median_bytes_per_second = 4 * network_bytes_per_second;
    rates.link_slowest_bytes_per_second = network_bytes_per_second;
    if (nodes > 1) rates.slowest_host = "h" + std::to_string(nodes);
    rates.network_tcp = network_bytes_per_second == 5e9;
    EXPECT_EQ(keep_machine_rates(file, "cpu", kSizes, rates), "");
  };
  const auto of = [&](Index most) { return kept_machine_rates(file, "cpu", kSizes, most).rates.value(); };
  kept(2, 4, 5e9);
  EXPECT_EQ(of(2).ranks, 8) << "8 ranks in all are 2 of a node";
  EXPECT_EQ(of(2).network_bytes_per_second, 5e9);
  EXPECT_FALSE(kept_machine_rates(file, "cpu", kSizes, 1).rates);
  kept(8, 1, 0);
  EXPECT_EQ(of(8).node_ranks, 8) << "the same number of ranks elsewhere is another measurement";
  EXPECT_EQ(of(8).network_bytes_per_second, 5e9) << "the node's ranks from one, the network from the other";
  EXPECT_TRUE(of(8).network_tcp);
  kept(8, 2, 7e9);
  EXPECT_EQ(of(8).ranks, 16);
  EXPECT_EQ(of(8).network_bytes_per_second, 7e9);
  EXPECT_EQ(of(8).slowest_host, "h2");
  EXPECT_EQ(of(2).slowest_host, "h4");
  EXPECT_EQ(of(2).link_median_bytes_per_second, 20e9);
  EXPECT_EQ(of(2).link_slowest_bytes_per_second, 5e9);
  EXPECT_TRUE(of(2).unequal_links());
  EXPECT_FALSE(of(8).network_tcp);
  EXPECT_EQ(of(2).network_bytes_per_second, 5e9);
}

TEST(RateCache, MachineRatesThatNoMeasurementGivesAreAWarning) {
  const TemporaryFolder folder;
  const auto file = rate_cache_file(folder.path());
  keep_machine_rates(file, "cpu", kSizes, machine_rates(1));
  const std::string whole = read_bytes(file);
  const auto with = [&](const std::string& old, const std::string& text) {
    std::string changed = whole;
    return changed.replace(changed.find(old), old.size(), text);
  };
  for (const std::string& damaged : {with("\"head_flops\": 6.0", "\"head_flops\": 0.0"), with("4.0", "-4.0"),
                                     with("plan_slots", "slots")}) {
    write_bytes(file, damaged);
    const MachineAnswer answer = kept_machine_rates(file, "cpu", kSizes, 8);
    EXPECT_FALSE(answer.rates) << damaged;
    EXPECT_NE(answer.warning.find("cannot be used"), std::string::npos) << damaged;
  }
}

TEST(RateMachine, NamesTheCpuTheThreadsAndTheLibraries) {
  const std::string machine = rate_machine();
  for (const char* part : {"threads=", "moeloom ", "OpenBLAS"})
    EXPECT_NE(machine.find(part), std::string::npos) << machine;
  EXPECT_EQ(machine.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace moeloom
