#include "step/settings_text.hpp"

#include <iomanip>
#include <sstream>
#include <type_traits>

namespace moeloom {
namespace {

/// Each struct is taken apart with a name for each of its fields: with a new field it does not compile until
/// that is compared too. Ranks whose settings differ would learn something else, or wait for each other.
class SettingsText {
 public:
  SettingsText() { text_ << std::hexfloat; }

  void add(const ModelSettings& settings) {
    const auto& [batch, keeping, exchange, kernels, gmm, dtype, optimizer, schedule, routing, aux_loss_coef,
                 z_loss_coef, router_bias_rate, on_nan, seed] = settings;
    add_all(batch, keeping, exchange, kernels, gmm, dtype, optimizer, schedule, routing, aux_loss_coef,
            z_loss_coef, router_bias_rate, on_nan, seed);
  }
  std::string text() const { return text_.str(); }

 private:
  template <typename... Fields>
  void add_all(const Fields&... fields) {
    (add(fields), ...);
  }

  void add(const BatchShape& batch) {
    const auto& [sequences, length, micro_batches, exact] = batch;
    add_all(sequences, length, micro_batches, exact);
  }
  void add(const Keeping& keeping) {
    const auto& [optimizer, moments, masters, gradients, recompute, shard_dense, offload] = keeping;
    add_all(optimizer, moments, masters, gradients, recompute, shard_dense, offload.string());
  }
  void add(const AskedExchange& exchange) {
    const auto& [dispatcher, combine, wire, chunks, overlap_reduce, overlap_gather, rebalance] = exchange;
    add_all(dispatcher, combine, wire, chunks, overlap_reduce, overlap_gather, rebalance);
  }
  void add(const OptimizerSettings& optimizer) {
    const auto& [adamw, max_grad_norm, decay_all, starved] = optimizer;
    add_all(adamw, max_grad_norm, decay_all, starved);
  }
  void add(const AdamW& adamw) {
    const auto& [beta1, beta2, epsilon, weight_decay] = adamw;
    add_all(beta1, beta2, epsilon, weight_decay);
  }
  void add(const Schedule& schedule) {
    const auto& [peak, warmup_steps, total_steps, final_fraction] = schedule;
    add_all(peak, warmup_steps, total_steps, final_fraction);
  }
  void add(const RoutingSettings& routing) {
    const auto& [training, dtype, balance, row_budget] = routing;
    add_all(training, dtype, balance, row_budget);
  }
  void add(const RouterTraining& training) {
    const auto& [expert_choice, capacity_factor] = training;
    add_all(expert_choice, capacity_factor);
  }
  void add(const BalanceSettings& balance) {
    const auto& [pooled, over] = balance;
    add_all(pooled, over);
  }

  template <typename Field>
  void add(const std::optional<Field>& field) {
    if (field) return add(*field);
    text_ << "none ";
  }
  void add(const std::string& field) { text_ << std::quoted(field) << ' '; }
  template <typename Field>
  requires std::is_enum_v<Field>
  void add(Field field) { text_ << static_cast<int>(field) << ' '; }
  template <typename Field>
  requires std::is_arithmetic_v<Field>
  void add(Field field) { text_ << field << ' '; }

  std::ostringstream text_;
};

}  // namespace

std::string settings_text(const ModelSettings& settings) {
  SettingsText text;
  text.add(settings);
  return text.text();
}

}  // namespace moeloom
