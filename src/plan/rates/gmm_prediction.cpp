#include "moeloom/plan/rates/gmm_prediction.hpp"

#include "moeloom/plan/rates/rate_cache.hpp"

#include <algorithm>
#include <array>

namespace moeloom {

GmmCase gmm_case(const ModelConfig& config, const GmmFacts& facts) {
  const auto rows = static_cast<Index>(facts.rows_per_expert + 0.5);
  return {config.hidden_size, config.moe_intermediate_size,
          experts_of(config.num_experts, *facts.ep_size, 0).count, std::max<Index>(rows, 1), *facts.ep_size};
}

FoundPrediction find_prediction(const GmmCase& wanted, double uses_per_packing, const RateSource& source) {
  const GmmCase measured = calibration_case(wanted);
  const GroupedMatmulKernel grouped =
      source.element == DType::kBF16 ? packed_bf16_grouped_matmul() : packed_grouped_matmul();
  const RateAnswer answer = cached_rates(source.file, rate_machine(source.element), measured, source.refresh,
                                         [&](const GmmCase& c) {
                                           if (source.before_measuring) source.before_measuring();
                                           return measure_gmm_rates(c, kCalibrationSeconds, grouped);
                                         });
  return {predict(scaled(answer.rates, measured, wanted), uses_per_packing),
          answer.cached ? "cached" : "measured", answer.warning};
}

FoundPrediction agree_on_prediction(const GmmCase& wanted, double uses_per_packing, const RateSource& source,
                                    const Communicator& world) {
  FoundPrediction found;
  if (world.rank() == 0) found = find_prediction(wanted, uses_per_packing, source);
  std::array<double, 3> seconds = {found.seconds.loop_seconds, found.seconds.gmm_seconds,
                                   found.seconds.packed_seconds};
  world.broadcast(std::as_writable_bytes(std::span(seconds)), 0);
  found.seconds = {.loop_seconds = seconds[0], .gmm_seconds = seconds[1], .packed_seconds = seconds[2]};
  return found;
}

}  // namespace moeloom
