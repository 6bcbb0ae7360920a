// Whether two configs are of one model.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// The fields that make one compute other numbers than the other. What neither model has is not compared, as
/// a router's sums where there are no experts; lists with an entry a layer are compared as what they say of
/// each. `one`: of a family that runs.
std::vector<std::string> differing_fields(const ModelConfig& one, const ModelConfig& other);

}  // namespace moeloom
