#include "open/settled_options.hpp"

#include "fields/option_values.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {
namespace {

/// Of a run that goes on, the rate that it has.
bool records_rate(const RunInputs& inputs) {
  return inputs.recorded && inputs.recorded->settings.has("lr");
}

/// With numbers for --lr auto and its warm-up: those of the run that is resumed, or else by the model's
/// width.
OptimizerOptions with_rate(const TrainOptions& asked, const RunInputs& inputs) {
  OptimizerOptions optimizer = asked.optimizer;
  if (optimizer.learning_rate) return optimizer;
  if (!records_rate(inputs)) {
    const Schedule usual = schedule(asked, inputs.config.hidden_size);
    optimizer.learning_rate = usual.peak;
    optimizer.warmup = usual.warmup_steps;
    return optimizer;
  }
  const Document& before = inputs.recorded->settings;
  optimizer.learning_rate = before.number("lr");
  if (!optimizer.warmup && before.has("warmup")) optimizer.warmup = before.integer("warmup");
  return optimizer;
}

/// What --aux-loss auto means: as the run that is resumed has it, or else by where the model comes from.
bool pools_aux_loss(const TrainOptions& asked, const RunInputs& inputs) {
  if (asked.router.aux_loss_pooled) return *asked.router.aux_loss_pooled;
  if (asked.router.aux_loss_over == BalanceOver::kSequence) return false;
  // What runs before there was a choice had.
  if (inputs.recorded) return inputs.recorded->settings.boolean_or("aux_loss_pooled", true);
  return inputs.resumes || !asked.model.folder.empty();
}

}  // namespace

std::string why_rate(const TrainOptions& asked, const RunInputs& inputs) {
  if (asked.optimizer.learning_rate) return {};
  if (records_rate(inputs)) return "auto: as the resumed run has it";
  const Index width = inputs.config.hidden_size;
  const std::string peak = "auto: " + value_text(kUsualPeak), limit = std::to_string(kUsualPeakWidth);
  return width <= kUsualPeakWidth ? peak + " up to hidden_size " + limit
                                  : peak + " x " + limit + " / hidden_size " + std::to_string(width);
}

TrainOptions settled(const TrainOptions& asked, const RunInputs& inputs, Index steps) {
  TrainOptions options = asked;
  options.run.steps = steps;
  options.data.epochs = 0;  // steps are what counts
  // What a resumed run reads, which has no shape of its own to compare with.
  if (asked.model.folder.empty()) options.model.shape.vocab_size = inputs.config.vocab_size;
  // Of these steps, from here on.
  options.optimizer = with_rate(options, inputs);
  options.router.aux_loss_pooled = pools_aux_loss(asked, inputs);
  return options;
}

}  // namespace moeloom
