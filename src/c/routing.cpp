// Which experts tokens choose, and with what weight.
#include "moe/routing/router.hpp"

#include <algorithm>
#include <vector>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// Settings with the vector that they show.
class Router {
 public:
  Router(const ml_router* router, Index num_experts) {
    const ml_router known = known_part(router, "ml_router");
    settings_ = softmax_router(num_experts, known.top_k, false);
    if (known.normalize != 0) settings_.divide = {DivideBy::kSumPlus, known.epsilon};
    if (known.normalize != 0 && known.epsilon == 0) settings_.divide = {DivideBy::kSum};
    if (known.scaling != 0) settings_.scaling_factor = known.scaling;
    if (known.groups > 1) settings_.num_groups = known.groups;
    if (known.groups > 1) settings_.topk_group = known.kept_groups;
    set_score(known.score);
    if (known.bias != nullptr) set_bias(check_array(known.bias, "bias", {num_experts}));
    check_router(settings_);
  }
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;
  const RouterSettings& settings() const { return settings_; }

 private:
  void set_score(std::int32_t score) {
    if (score == ML_SIGMOID) settings_.score = RouterScore::kSigmoid;
    if (score == ML_SOFTMAX_OF_CHOSEN) settings_.choose_by = ChooseBy::kLogit;
    if (score == ML_SOFTMAX_OF_CHOSEN) settings_.weigh_by = WeighBy::kSoftmaxOfChosen;
    if (score < ML_SOFTMAX || score > ML_SOFTMAX_OF_CHOSEN)
      throw ConfigError({"a score is ML_SOFTMAX, ML_SIGMOID or ML_SOFTMAX_OF_CHOSEN"});
  }
  void set_bias(const ml_array& bias) {
    const RowsIn numbers(bias, "bias", InPlace::kFlat);
    bias_.assign(numbers.flat().begin(), numbers.flat().end());
    settings_.correction_bias = bias_;
  }

  RouterSettings settings_;
  std::vector<float> bias_;
};

ConstMatrixView as_rows(std::span<const float> numbers, Index rows) {
  return {numbers.data(), rows, rows == 0 ? 0 : std::ssize(numbers) / rows};
}

void choose(const ml_router* router, const ml_array* logits, const ml_array* topk_idx,
            const ml_array* topk_weights) {
  check_array(logits, "logits", {kAny, kAny});
  const Router chooser(router, logits->shape[1]);
  const Index tokens = logits->shape[0], k = chooser.settings().top_k;
  check_array(topk_idx, "topk_idx", {tokens, k});
  check_array(topk_weights, "topk_weights", {tokens, k});
  Routing routing;
  route(RowsIn(*logits, "logits").fp32(), chooser.settings(), routing);
  write_integers(std::vector<Index>(routing.topk_idx.begin(), routing.topk_idx.end()), *topk_idx, "topk_idx");
  write_floats(as_rows(routing.topk_weights, tokens), *topk_weights, "topk_weights");
}

void choose_backward(const ml_router* router, const ml_array* d_topk_weights, const ml_array* logits,
                     const ml_array* topk_idx, const ml_array* d_logits) {
  check_array(logits, "logits", {kAny, kAny});
  const Router chooser(router, logits->shape[1]);
  const RouterSettings& settings = chooser.settings();
  const Index tokens = logits->shape[0];
  check_array(topk_idx, "topk_idx", {tokens, settings.top_k});
  check_array(d_topk_weights, "d_topk_weights", {tokens, settings.top_k});
  const RowsIn numbers(*logits, "logits"), d_weights(*d_topk_weights, "d_topk_weights", InPlace::kFlat);
  const RowsOut results(check_array(d_logits, "d_logits", shape_of(*logits)), "d_logits");
  Routing routing;
  score(numbers.fp32(), settings, routing);
  routing.top_k = settings.top_k;
  routing.topk_idx = chosen_of(*topk_idx, settings.num_experts);
  weigh(numbers.fp32(), settings, routing);
  route_backward(routing, settings, d_weights.flat(), {}, {}, results.fp32());
  results.store();
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_route(const ml_router* router, const ml_array* logits, const ml_array* topk_idx,
                   const ml_array* topk_weights) {
  return guarded([&] { choose(router, logits, topk_idx, topk_weights); });
}

ml_status ml_route_grad(const ml_router* router, const ml_array* d_topk_weights, const ml_array* logits,
                        const ml_array* topk_idx, const ml_array* d_logits) {
  return guarded([&] { choose_backward(router, d_topk_weights, logits, topk_idx, d_logits); });
}
