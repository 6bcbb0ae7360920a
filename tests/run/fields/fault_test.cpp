#include "fields/fault.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

Position at_phase(Index step, Index layer, Phase phase) {
  Position position;
  position.activity = Activity::kTraining;
  position.step = step;
  position.layer = layer;
  position.phase = phase;
  return position;
}

Fault fault_of(std::string_view text) {
  return faults_from_text(text).value().front();
}

TEST(Fault, IsReadFromItsWords) {
  const Fault fault = fault_of("stop:2:17:combine:3");
  EXPECT_EQ(fault.kind, FaultKind::kStop);
  EXPECT_EQ(fault.rank, 2);
  EXPECT_EQ(fault.step, 17);
  EXPECT_EQ(fault.where, "combine");
  EXPECT_EQ(fault.layer, 3);
  EXPECT_EQ(fault_of("kill:0:1:saving").layer, -1);
  EXPECT_EQ(fault_of("short-write:0:1:manifest").kind, FaultKind::kShortWrite);
  for (const char* wrong :
       {"", "kill", "kill:0:1", "burn:0:1:combine", "kill:x:1:combine", "kill:0:-1:combine",
        "kill:0:1:nowhere", "kill:0:1:combine:x", "kill:0:1:combine:1:1", "nan:0:1:fsync", ",",
        "kill:0:1:combine,burn:0:1:combine"})
    EXPECT_FALSE(faults_from_text(wrong)) << wrong;
  for (const char* word : {"router", "optimizer", "loading", "saving", "fsync", "manifest", "flip", "enospc"})
    EXPECT_NE(valid_faults().find(std::string(" ") + word), std::string::npos) << word;
}

TEST(Fault, MayBeOneOfSeveral) {
  const auto faults = faults_from_text("kill:1:5:experts,stop:0:3:loading");
  ASSERT_TRUE(faults);
  ASSERT_EQ(faults->size(), 2u);
  EXPECT_EQ((*faults)[0].text, "kill:1:5:experts");
  EXPECT_EQ((*faults)[1].where, "loading");
}

TEST(Fault, StrikesInItsPhaseOfItsStepAndLayer) {
  const Fault any = fault_of("kill:0:2:experts"), third = fault_of("kill:0:2:experts:3");
  EXPECT_TRUE(any.strikes(at_phase(2, 0, Phase::kExperts), 2));
  EXPECT_FALSE(any.strikes(at_phase(1, 0, Phase::kExperts), 1));
  EXPECT_FALSE(any.strikes(at_phase(2, 0, Phase::kCombine), 2));
  EXPECT_FALSE(third.strikes(at_phase(2, 0, Phase::kExperts), 2));
  EXPECT_TRUE(third.strikes(at_phase(2, 3, Phase::kExperts), 2));
  Position saving;
  saving.activity = Activity::kSaving;
  EXPECT_TRUE(fault_of("kill:0:2:saving").strikes(saving, 2));
  EXPECT_FALSE(fault_of("kill:0:2:saving").strikes(saving, 4));
}

TEST(Fault, StrikesBeforeAStageOfItsStepsCheckpoint) {
  const std::filesystem::path partial = "run/.checkpoint-6.partial", weights = partial / "model.safetensors";
  const std::filesystem::path manifest = partial / "manifest.json.partial";
  const Fault write = fault_of("kill:0:6:write"), sync = fault_of("kill:0:6:fsync");
  const Fault rename = fault_of("kill:0:6:rename"), last = fault_of("kill:0:6:manifest");
  EXPECT_TRUE(write.strikes(FileStage::kWrite, weights));
  EXPECT_FALSE(write.strikes(FileStage::kSync, weights));
  EXPECT_FALSE(write.strikes(FileStage::kWrite, "run/.checkpoint-16.partial/model.safetensors"));
  EXPECT_FALSE(write.strikes(FileStage::kWrite, "run/metrics.jsonl"));
  EXPECT_TRUE(sync.strikes(FileStage::kSync, weights));
  EXPECT_TRUE(sync.strikes(FileStage::kSync, partial));
  EXPECT_TRUE(rename.strikes(FileStage::kRename, partial));
  EXPECT_FALSE(rename.strikes(FileStage::kRename, manifest));
  EXPECT_TRUE(last.strikes(FileStage::kWrite, manifest));
  EXPECT_FALSE(last.strikes(FileStage::kWrite, weights));
}

}  // namespace
}  // namespace moeloom
