// Ranks in texts, by the names that they have for whoever reads it.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace moeloom {

/// "rank 2", "ranks 1,3". names [size]: what a rank is called; none: by its number.
std::string ranks_text(std::span<const std::size_t> ranks, std::span<const Index> names = {});

/// As that of communicator.hpp, with ranks by these names.
void throw_if_any_failed(const Communicator& comm, const std::string& my_error, Cause my_cause,
                         std::span<const Index> names);

}  // namespace moeloom
