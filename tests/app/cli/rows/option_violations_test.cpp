#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "fields/train_fields.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Change = std::function<void(TrainOptions&)>;

TrainOptions usable() {
  TrainOptions options;
  options.data.sources = {{"corpus.txt"}};
  return options;
}

std::vector<std::string> violations_of(const Change& change, Index world = 2) {
  TrainOptions options = usable();
  change(options);
  return option_violations(options, world);
}

bool lists(const std::vector<std::string>& violations, const std::string& part) {
  return std::ranges::any_of(violations, [&](const std::string& text) {
    return with_flag_names(text).find(part) != std::string::npos;
  });
}

TEST(OptionViolations, TheDefaultsRunOnOneToSixteenRanks) {
  for (const Index world : {1, 2, 4, 8, 16}) EXPECT_TRUE(option_violations(usable(), world).empty()) << world;
}

TEST(OptionViolations, EachSaysItsArithmetic) {
  const std::vector<std::tuple<Change, Index, std::string>> cases = {
      {[](auto& o) { o.batch.sequences = 6; }, 4,
       "global-batch = 6 sequences do not divide over 4 ranks x 1 micro-batches; choose a multiple of 4"},
      {[](auto& o) { o.batch.sequences = 2; }, 4, "choose a multiple of 4"},
      {[](auto& o) { o.batch.micro_batches = 3; }, 2, "2 ranks x 3 micro-batches; choose a multiple of 6"},
      {[](auto& o) { o.batch.sequences = 0; }, 2, "global-batch = 0 must be at least 1"},
      {[](auto& o) { o.batch.length = -1; }, 2, "seq-len = -1 must be at least 1"},
      {[](auto& o) { o.batch.micro_batches = Index{1} << 62; }, 2, "is too large"},
      {[](auto& o) { o.data.sources.clear(); }, 2, "--data FILE[:WEIGHT] is needed"},
      {[](auto& o) { o.data.heldout = 1; }, 2, "heldout = 1 must lie in [0, 1)"},
      {[](auto& o) { o.data.heldout = -0.5; }, 2, "heldout = -0.5 must lie in [0, 1)"},
      {[](auto& o) { o.mesh.ep = 9; }, 9, "ep = 9 is more than num_experts = 8"},
      {[](auto& o) { o.mesh.ep = 4; }, 2, "ep = 4 does not divide the 2 ranks"},
      {[](auto& o) { o.mesh.dp = 2, o.mesh.ep = 2; }, 2, "dp x ep"},
      {[](auto& o) { o.model.shape.num_experts_per_tok = 9; }, 2, "num_experts_per_tok = 9"},
      {[](auto& o) { o.model.shape.hidden_size = 0; }, 2, "hidden_size = 0"},
      {[](auto& o) { o.kernels.kernels = "auto,fused_mlp"; }, 2, "unknown kernel \"fused_mlp\""},
      {[](auto& o) { o.kernels.threads = -1; }, 2, "threads = -1 must be at least 0"},
      {[](auto& o) { o.kernels.threads = 100000; }, 2,
       "threads = 100000 must be at most 1024: each has a stack and workspaces of its own"},
      {[](auto& o) { o.run.sample_chars = 10001; }, 2, "sample-chars = 10001 must be at most 10000"},
      {[](auto& o) { o.run.sample_chars = std::numeric_limits<Index>::max(); }, 2, "is too large"},
      {[](auto& o) { o.optimizer.learning_rate = 0; }, 2, "lr = 0 must be positive"},
      {[](auto& o) { o.optimizer.warmup = -1; }, 2, "warmup = -1 must be at least 0"},
      {[](auto& o) { o.optimizer.final_lr_fraction = 1.5; }, 2, "final-lr-fraction = 1.5"},
      {[](auto& o) { o.optimizer.settings.adamw.beta2 = 1; }, 2, "beta2 = 1 must lie in [0, 1)"},
      {[](auto& o) { o.optimizer.settings.adamw.epsilon = 0; }, 2, "eps = 0 must be positive"},
      {[](auto& o) { o.optimizer.settings.max_grad_norm = -1; }, 2, "max-grad-norm = -1"},
      {[](auto& o) { o.router.aux_loss_coef = -1; }, 2, "aux-loss-coef = -1"},
      {[](auto& o) { o.run.steps = 0; }, 2, "steps = 0 must be at least 1"},
      {[](auto& o) {
         o.run.trace.steps = StepRange{0, 4};
       },
       2, "--trace-steps is that of --trace FILE, which is not given; remove it"},
      {[](auto& o) {
         o.run.routing.record_steps = StepRange{0, 4};
       },
       2, "--record-steps is that of --record-routing FILE, which is not given; remove it"},
      {[](auto& o) { o.run.routing = {.record = "r", .replay = "r"}; }, 2,
       "--record-routing and --replay-routing name one file; record into another"},
      {[](auto& o) { o.run.log_every = 0; }, 2, "log-every = 0 must be at least 1"},
      {[](auto& o) { o.run.folder.clear(); }, 2, "--run DIR is needed"},
      {[](auto& o) { o.run.export_dtype = DType::kBF16; }, 2,
       "--export-dtype is that of --export DIR, which is not given"},
      {[](auto& o) { o.model.allow_missing = {"lm_head.weight"}; }, 2,
       "--allow-missing is that of --model DIR, which is not given"},
      {[](auto& o) { o.optimizer.lora.emplace(), o.optimizer.freeze = {"*norm*"}; }, 2,
       "--freeze cannot be had with --lora: it trains adapters alone; remove one"},
      {[](auto& o) { o.optimizer.lora.emplace(), o.keeping.optimizer = OptimizerKind::kMuon; }, 2,
       "--optimizer cannot be had with --lora"},
      {[](auto& o) { o.optimizer.lora.emplace(), o.keeping.masters = Storage::kSplit; }, 2,
       "--masters cannot be had with --lora"},
      {[](auto& o) { o.optimizer.lora.emplace(), o.keeping.gradients = Storage::kBf16; }, 2,
       "--gradients cannot be had with --lora"},
      {[](auto& o) { o.run.prompt.clear(); }, 2, "--prompt must hold at least one character"},
      {[](auto& o) { o.model.folder = "qwen", o.run.resume = "runs/x"; }, 2,
       "--resume cannot be had with --model: the checkpoint has the model; remove one"},
      {[](auto& o) {
         o.model.folder = "qwen", o.model.shape_given = {"hidden", "layers"};
       },
       2, "--model takes the shape from qwen/config.json; remove --hidden, --layers"}};
  for (const auto& [change, world, expected] : cases) {
    const auto violations = violations_of(change, world);
    EXPECT_TRUE(lists(violations, expected))
        << expected << "\nfound: " << (violations.empty() ? "nothing" : violations.front());
  }
}

TEST(OptionViolations, AllAreListedAtOnce) {
  const auto violations = violations_of([](TrainOptions& options) {
    options.optimizer.learning_rate = -1;
    options.batch.sequences = 5;
    options.run.steps = 0;
  });
  EXPECT_EQ(violations.size(), 3u);
}

TEST(OptionViolations, KernelsTakesEveryWordThatTheRegistryTakes) {
  for (const char* word : {"AUTO", "true", "1", "None", "0", " npu_fused_moe , fused_rope"})
    EXPECT_TRUE(violations_of([&](TrainOptions& o) { o.kernels.kernels = word; }).empty()) << word;
}

TEST(OptionViolations, AModelStillToBeReadIsNotJudgedByTheDefaults) {
  EXPECT_TRUE(
      violations_of([](TrainOptions& o) { o.model.folder = "qwen", o.mesh.ep = 3, o.batch.sequences = 3; }, 3)
          .empty());
}

TEST(OptionViolations, AGivenShapeMustAgreeWithTheLoadedModel) {
  ModelOptions given;
  given.shape_given = {"hidden", "layers"};
  given.shape.num_hidden_layers = 2;
  ModelConfig loaded = given.shape;
  EXPECT_TRUE(shape_violations(given, loaded).empty());
  loaded.num_hidden_layers = 6;
  loaded.vocab_size = 999;  // was not asked for
  const auto violations = shape_violations(given, loaded);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(with_flag_names(violations[0]),
            "--layers = 2, but the model that is loaded has 6; remove the option");
  given.shape_given = {"dense-layers"};
  given.shape.mlp_only_layers = {0};
  EXPECT_EQ(with_flag_names(shape_violations(given, loaded).at(0)),
            "--dense-layers = 0, but the model that is loaded has none; remove the option");
}

}  // namespace
}  // namespace moeloom
