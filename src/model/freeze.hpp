// Which parameters of a model are kept out of training.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/base/glob.hpp"

#include <set>
#include <string>

namespace moeloom {

/// Names of the parameters that a pattern names, by the parameter's own name or by all of its tensors'.
/// specs: of the whole model, so that the answer is that of every rank. Throws ConfigError for a pattern that
/// matches nothing, and for a parameter of which it matches some tensors and not others: they are one stretch
/// of memory, trained together or not at all.
std::set<std::string> matching_parameters(const std::vector<ParameterSpec>& specs,
                                          const NamePatterns& patterns);

/// Marks the parameters of these names as frozen, beside those that are so anyway.
std::vector<ParameterSpec> with_frozen(std::vector<ParameterSpec> specs, const std::set<std::string>& names);

/// Names of the frozen ones, sorted.
std::vector<std::string> frozen_names(const ParameterStore& store);

}  // namespace moeloom
