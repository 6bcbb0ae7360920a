// How long each path of the experts takes on this machine, timed or known from before.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/model/hf/config.hpp"
#include "plan/rates/calibration.hpp"

#include <filesystem>
#include <functional>

namespace moeloom {

/// The experts' products of a rank of such a mesh, by the facts that the policy weighs.
GmmCase gmm_case(const ModelConfig& config, const GmmFacts& facts);

/// Where rates are kept and how they are found.
struct RateSource {
  std::filesystem::path file;  // the user's cache; empty: none
  bool refresh = false;        // measure anew, whatever the file holds
  DType element = DType::kF32;
  std::function<void()> before_measuring = nullptr;
};

/// Of this rank, in kCalibrationSeconds unless the file knows it.
GmmPrediction find_prediction(const GmmCase& wanted, double uses_per_packing, const RateSource& source);

}  // namespace moeloom
