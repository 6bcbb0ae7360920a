#include "plan/rates/gmm_prediction.hpp"

#include "plan/rates/rate_cache.hpp"

#include <algorithm>

namespace moeloom {

GmmCase gmm_case(const ModelConfig& config, const GmmFacts& facts) {
  const auto rows = static_cast<Index>(facts.rows_per_expert + 0.5);
  return {config.hidden_size, config.moe_intermediate_size,
          experts_of(config.num_experts, *facts.ep_size, 0).count, std::max<Index>(rows, 1), *facts.ep_size};
}

GmmPrediction find_prediction(const GmmCase& wanted, double uses_per_packing, const RateSource& source) {
  const GmmCase measured = calibration_case(wanted);
  const GroupedMatmulKernel grouped =
      source.element == DType::kBF16 ? packed_bf16_grouped_matmul() : packed_grouped_matmul();
  const RateAnswer answer = cached_rates(source.file, rate_machine(source.element), measured, source.refresh,
                                         [&](const GmmCase& c) {
                                           if (source.before_measuring) source.before_measuring();
                                           return measure_gmm_rates(c, kCalibrationSeconds, grouped);
                                         });
  return predict(scaled(answer.rates, measured, wanted), uses_per_packing);
}

}  // namespace moeloom
