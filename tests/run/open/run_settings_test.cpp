#include "open/run_settings.hpp"

#include "moeloom/model/hf/config.hpp"

#include <functional>

#include "fields/train_fields.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Texts = std::vector<std::string>;

const Index kWidth = ModelConfig().hidden_size;

TrainerState state_of(const TrainOptions& options, Index step) {
  TrainerState state;
  state.step = step;
  state.seed = options.run.seed;
  state.data_bytes = 1000;
  state.global_batch = options.batch.sequences;
  state.sequence_length = options.batch.length;
  state.settings = document_of(trainer_settings(options, {}));
  add_routing(options.router, {}, state.settings);
  add_step_texts(options, state.settings);
  return state;
}

/// What changes at step 200 of 500 for a run that goes on with other options.
Texts changes_by(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  const TrainerState then = TrainerState::from(state_of(options, 200).to_document());
  change(options);
  Texts texts;
  for (const Event& event : changes_between(then, state_of(options, 200))) texts.push_back(event.text());
  return texts;
}

TEST(RunSettings, OfTheSameRunDoNotChange) {
  EXPECT_EQ(changes_by([](TrainOptions&) {}), Texts{});
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.optimizer.schedule_steps = 500; }), Texts{})
      << "said, not new";
  EXPECT_EQ(changes_by([](TrainOptions& o) {
              o.run.steps = 800;
              o.optimizer.schedule_steps = 500;
            }),
            Texts{})
      << "more steps on the old schedule";
}

TEST(RunSettings, MoreStepsChangeTheScheduleAndSaySo) {
  const TrainOptions before;
  TrainOptions after;
  after.run.steps = 800;
  const Event seam = Event()
                         .with("changed", "learning rate")
                         .with("then", schedule(before, kWidth).at(199))
                         .with("now", schedule(after, kWidth).at(200))
                         .with("step", 200);
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.run.steps = 800; }),
            (Texts{"changed=warmup then=50 now=80 keep=\"`warmup` 50\"",
                   "changed=schedule-steps then=500 now=800 keep=\"`schedule-steps` 500\"", seam.text()}));
}

TEST(RunSettings, EachIsNamedWithTheOptionThatKeepsIt) {
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.router.aux_loss_coef = 0.5; }),
            Texts{"changed=aux-loss-coef then=0.02 now=0.5 keep=\"`aux-loss-coef` 0.02\""});
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.router.z_loss_coef = 1e-5; }),
            Texts{"changed=z-loss-coef then=0 now=1e-05 keep=\"`z-loss-coef` 0\""});
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.run.seed = 7; }),
            Texts{"changed=seed then=0 now=7 keep=\"`seed` 0\""});
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.batch.sequences = 8; }),
            Texts{"changed=global-batch then=16 now=8 keep=\"`global-batch` 16\""});
  const Texts peak = changes_by([](TrainOptions& o) { o.optimizer.learning_rate = 1e-4; });
  ASSERT_EQ(peak.size(), 2u);
  EXPECT_EQ(peak[0], "changed=lr then=0.001 now=1e-04 keep=\"`lr` 0.001\"");
  EXPECT_EQ(changes_by([](TrainOptions& o) { o.optimizer.final_lr_fraction = 0; }).size(), 2u);
}

TEST(RunSettings, WhatAStepDoesOtherwiseIsNamed) {
  const auto only = [](const std::function<void(TrainOptions&)>& change) {
    const Texts texts = changes_by(change);
    return texts.size() == 1 ? texts.front() : std::to_string(texts.size()) + " changes";
  };
  EXPECT_EQ(only([](TrainOptions& o) { o.optimizer.settings.adamw.beta1 = 0.5; }),
            "changed=beta1 then=0.9 now=0.5 keep=\"`beta1` 0.9\"");
  EXPECT_EQ(only([](TrainOptions& o) { o.mesh.exchange.wire = WireDType::kBf16; }),
            "changed=wire-dtype then=fp32 now=bf16 keep=\"`wire-dtype` fp32\"");
  EXPECT_EQ(only([](TrainOptions& o) { o.mesh.exchange.combine = CombineMode::kFast; }),
            "changed=combine then=exact now=fast keep=\"`combine` exact\"");
  EXPECT_EQ(only([](TrainOptions& o) { o.router.forced = SyntheticWorkload::kZipf; }),
            "changed=force-routing then=none now=zipf keep=\"`force-routing` none\"");
  EXPECT_EQ(only([](TrainOptions& o) { o.run.on_nan = OnNan::kSkip; }),
            "changed=on-nan then=stop now=skip keep=\"`on-nan` stop\"");
  EXPECT_EQ(only([](TrainOptions& o) { o.keeping.shard_dense = true; }),
            "changed=shard-dense then=false now=true keep=\"`shard-dense` false\"");
  EXPECT_EQ(only([](TrainOptions& o) { o.run.routing.replay = "r.routing"; }),
            "changed=replay-routing then=\"\" now=r.routing keep=\"no `replay-routing`\"");
}

TEST(RunSettings, RoutersOfAnotherKindAreNamed) {
  const auto only = [](const std::function<void(RouterOptions&)>& change) {
    const Texts texts = changes_by([&](TrainOptions& o) { change(o.router); });
    return texts.size() == 1 ? texts.front() : std::to_string(texts.size()) + " changes";
  };
  EXPECT_EQ(only([](RouterOptions& r) { r.dtype = RouterDType::kFp64; }),
            "changed=router-dtype then=fp32 now=fp64 keep=\"`router-dtype` fp32\"");
  EXPECT_EQ(only([](RouterOptions& r) { r.aux_loss_over = BalanceOver::kSequence; }),
            "changed=aux-loss-over then=micro-batch now=sequence keep=\"`aux-loss-over` micro-batch\"");
  EXPECT_EQ(only([](RouterOptions& r) { r.aux_loss_pooled = false; }),
            "changed=aux-loss then=pooled now=layer keep=\"`aux-loss` pooled\"");
  EXPECT_EQ(only([](RouterOptions& r) { r.kind = RouterKind::kTopK; }), "0 changes") << "said, not new";
  const Texts chosen = changes_by([](TrainOptions& o) { o.router.kind = RouterKind::kExpertChoice; });
  ASSERT_EQ(chosen.size(), 2u) << "and its coefficient of the balance loss";
  EXPECT_EQ(chosen[1], "changed=router then=top-k now=expert-choice keep=\"`router` top-k\"");
}

TEST(RunSettings, WhatAnOlderProgramDidNotRecordOfRoutersIsNotCompared) {
  TrainOptions options;
  TrainerState then = state_of(options, 200);
  then.settings = document_of(trainer_settings(options, {}));
  options.router.dtype = RouterDType::kFp64;
  options.router.aux_loss_pooled = false;
  options.run.on_nan = OnNan::kSkip;
  EXPECT_TRUE(changes_between(then, state_of(options, 200)).empty());
}

TEST(RunSettings, WhatIsGoneIsToldWhereItWasNotWhatThereIsNow) {
  const TrainerState now = state_of({}, 200);
  TrainerState then = now;
  then.settings.set("router_jitter", 0.0);
  then.settings.set("drop_by", std::string("probability"));
  EXPECT_TRUE(changes_between(then, now).empty());
  then.settings.set("router_jitter", 0.1);
  then.settings.set("drop_by", std::string("position"));
  const auto changes = changes_between(then, now);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].text(), "changed=router-jitter then=0.1 now=0");
  EXPECT_EQ(changes[1].text(), "changed=drop-by then=position now=probability");
}

TEST(RunSettings, LargeCountsAreWrittenAsOptionsTakeThem) {
  const Texts texts = changes_by([](TrainOptions& o) { o.optimizer.schedule_steps = 100000; });
  ASSERT_GE(texts.size(), 2u);
  EXPECT_NE(texts[1].find("now=100000 "), std::string::npos) << texts[1];
}

TEST(RunSettings, OfAnOlderProgramAreNotCompared) {
  TrainerState then = state_of({}, 200);
  then.settings = Document();
  TrainOptions options;
  options.run.steps = 800;
  EXPECT_TRUE(changes_between(then, state_of(options, 200)).empty());
}

}  // namespace
}  // namespace moeloom
