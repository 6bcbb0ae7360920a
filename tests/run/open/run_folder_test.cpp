// What a run may start from and where it may write, before a rank is started.
#include "open/run_folder.hpp"

#include "moeloom/base/errors.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include "fields/train_fields.hpp"
#include "open/model_folder.hpp"
#include "open/model_source.hpp"
#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;
using testing::write_bytes;

/// RUN/checkpoint-<step> with every file's name and nothing in them.
fs::path make_checkpoint(const fs::path& run, const std::string& name) {
  const fs::path path = run / name;
  fs::create_directories(path);
  for (const char* file : {"config.json", "model.safetensors", "optimizer.safetensors", "trainer_state.json"})
    write_bytes(path / file, "");
  return path;
}

RunOptions run_into(const fs::path& folder, const fs::path& resume = {}, bool overwrite = false) {
  RunOptions run;
  run.folder = folder;
  run.resume = resume;
  run.overwrite = overwrite;
  return run;
}

std::string refusal_of(const RunOptions& run) {
  return message_of<Error>([&] { check_run_folder(run); });
}

TEST(RunFolder, GoesOnUnderAnyNameOfTheFolder) {
  const TemporaryFolder folder;
  const fs::path one = folder / "one";
  const fs::path checkpoint = make_checkpoint(one, "checkpoint-2");
  make_checkpoint(folder / "two", "checkpoint-2");
  fs::create_directory_symlink(one, folder / "link");
  for (const fs::path& name : {one, one / "", folder / "." / "one", folder / "link", checkpoint,
                               checkpoint / "", folder / "link" / "checkpoint-2"})
    EXPECT_TRUE(goes_on_in_its_folder(run_into(one, name))) << name;
  EXPECT_TRUE(goes_on_in_its_folder(run_into(folder / "link" / "", one)));
  for (const fs::path& name : {fs::path(), folder / "two", folder / "two" / "checkpoint-2", folder / "none",
                               folder.path(), one / "checkpoint-9"})
    EXPECT_FALSE(goes_on_in_its_folder(run_into(one, name))) << name;
}

TEST(RunFolder, IsRefusedWhereItHoldsAnotherRun) {
  const TemporaryFolder folder;
  const fs::path one = folder / "one";
  const fs::path two = folder / "two";
  make_checkpoint(one, "checkpoint-2");
  make_checkpoint(two, "checkpoint-2");
  const std::string nothing = "nothing thrown";
  EXPECT_EQ(refusal_of(run_into(folder / "new")), nothing);
  EXPECT_EQ(refusal_of(run_into(folder / "new", one)), nothing);
  EXPECT_EQ(refusal_of(run_into(one, one)), nothing);
  EXPECT_EQ(refusal_of(run_into(one, {}, true)), nothing);
  EXPECT_EQ(refusal_of(run_into(two, one, true)), nothing);
  EXPECT_NE(refusal_of(run_into(one)).find("go on with it by `resume`"), std::string::npos);
  const std::string mixed = refusal_of(run_into(two, one));
  EXPECT_NE(mixed.find(two.string() + " holds a run already that `resume` " + one.string()),
            std::string::npos)
      << mixed;
  const std::string lost = refusal_of(run_into(one, one / "checkpoint-2", true));
  EXPECT_NE(lost.find("`overwrite` would remove " + one.string()), std::string::npos) << lost;
}

TEST(RunFolder, KeepsItsOldSettingsWhereNewOnesCannotBeWritten) {
  const TemporaryFolder folder;
  write_bytes(folder / "train.conf", "steps = 7\n");
  fs::create_symlink("/dev/full", folder / "train.conf.partial");
  TrainOptions options;
  options.run.folder = folder.path();
  EXPECT_THROW(begin_run_folder(options), IoError);
  EXPECT_EQ(testing::read_bytes(folder / "train.conf"), "steps = 7\n");
  make_run_folder(options.run.folder);
  begin_run_folder(options);
  EXPECT_EQ(testing::read_bytes(folder / "train.conf"), resolved_config(options));
}

TEST(RunFolder, OverwriteRemovesWhatStartsBeforeHaveLeft) {
  const TemporaryFolder folder;
  for (const char* name : {"ended", "stall"}) fs::create_directory(folder / name);
  write_bytes(folder / "ended" / "rank-0", "1 0 h train\n");
  write_bytes(folder / "elastic", "`ep` 4\n");
  fs::remove(make_checkpoint(folder.path(), "checkpoint-20") / "model.safetensors");
  TrainOptions options;
  options.run.folder = folder.path();
  begin_run_folder(options);
  EXPECT_TRUE(fs::exists(folder / "elastic"));
  options.run.overwrite = true;
  begin_run_folder(options);
  for (const char* name : {"elastic", "ended", "stall", "checkpoint-20"})
    EXPECT_FALSE(fs::exists(folder / name)) << name;
}

TEST(ModelFolder, StartsFromInitialWeightsOnlyWhereNoneAreThere) {
  struct Case {
    std::vector<std::string> files;
    std::string expected;  // empty: a config alone
  };
  const std::vector<Case> cases = {
      {{"tokenizer.json", "vocab.txt"}, ""},
      {{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
       "holds model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, but no weights that can be "
       "loaded: expected model.safetensors, or model.safetensors.index.json"},
      {{"pytorch_model.bin"}, "holds pytorch_model.bin, but no weights that can be loaded: only safetensors"},
      {{"weights.pt"}, "weights.pt"},
      {{"q4.gguf"}, "q4.gguf"},
      {{"manifest.json"}, "has lost model.safetensors, which its manifest.json tells of"},
      {{"1.pt", "2.pt", "3.pt", "4.pt", "5.pt", "6.pt"}, "1.pt, 2.pt, 3.pt, 4.pt and 2 more"}};
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    write_bytes(folder / "config.json", "{}");
    for (const std::string& file : c.files) write_bytes(folder / file, "x");
    const std::string message = message_of<IoError>([&] { EXPECT_TRUE(holds_config_alone(folder.path())); });
    EXPECT_NE(message.find(c.expected.empty() ? "nothing thrown" : c.expected), std::string::npos) << message;
  }
}

TEST(ModelFolder, ALinkToNothingIsNotNoWeights) {
  const TemporaryFolder folder;
  write_bytes(folder / "config.json", "{}");
  fs::create_symlink(folder / "gone", folder / "model.safetensors");
  EXPECT_NE(message_of<IoError>([&] {
              holds_config_alone(folder.path());
            }).find("model.safetensors (a link to nothing)"),
            std::string::npos);
}

TEST(ModelFolder, WithWeightsOrWithoutAConfigIsNotAConfigAlone) {
  const TemporaryFolder folder;
  EXPECT_FALSE(holds_config_alone(folder.path()));
  EXPECT_FALSE(holds_config_alone(folder / "none"));
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "model.safetensors.index.json", "{}");
  EXPECT_FALSE(holds_config_alone(folder.path()));
}

TEST(Positions, OfAModelFromFlagsHoldASequenceAndTheSample) {
  TrainOptions options;
  RunInputs inputs;
  Violations violations;
  open_model(options, 1, inputs, violations);
  EXPECT_EQ(inputs.config.max_position_embeddings, options.model.shape.max_position_embeddings);
  options.batch.length = 40000;
  options.run.prompt = "The ";
  options.run.sample_chars = 200;
  open_model(options, 1, inputs, violations);
  EXPECT_EQ(inputs.config.max_position_embeddings, 40000 + 4 + 200);
  options.run.sample_chars = 0;
  open_model(options, 1, inputs, violations);
  EXPECT_EQ(inputs.config.max_position_embeddings, 40000);
  EXPECT_TRUE(violations.empty());
}

TEST(Positions, OfALoadedModelBoundTheSequence) {
  const TemporaryFolder folder;
  ModelConfig config;
  config.max_position_embeddings = 128;
  config.to_document().write(folder / "config.json");
  TrainOptions options;
  options.model.folder = folder.path();
  const auto violations_at = [&](Index length) {
    options.batch.length = length;
    RunInputs inputs;
    Violations violations;
    open_model(options, 1, inputs, violations);
    return violations.list();
  };
  EXPECT_TRUE(violations_at(128).empty());
  const auto violations = violations_at(130);
  ASSERT_EQ(violations.size(), 1u);
  for (const char* part : {"seq-len = 130 is longer than max_position_embeddings = 128",
                           "the last 2 positions", "choose `seq-len` up to 128"})
    EXPECT_NE(violations[0].find(part), std::string::npos) << violations[0];
}

TEST(RunFolder, IsNoPlaceForAnExport) {
  const TemporaryFolder folder;
  RunOptions run = run_into(folder / "new");
  run.export_folder = folder / "." / "new";
  EXPECT_NE(refusal_of(run).find("is the run's own folder"), std::string::npos) << refusal_of(run);
  run.export_folder = folder / "out";
  EXPECT_EQ(refusal_of(run), "nothing thrown");
  std::filesystem::create_directory_symlink("elsewhere", folder / "out");
  EXPECT_NE(refusal_of(run).find("out is a link, whose place no folder can take"), std::string::npos)
      << refusal_of(run);
}

}  // namespace
}  // namespace moeloom
