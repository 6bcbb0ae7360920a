// Mutations of seeds, drawn from a number: the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fuzz/target.hpp"

namespace moeloom::fuzz {

/// The `number`-th mutation: one of the target's seeds with one to eight changes of its bytes, or
/// up to four of its JSON.
std::string mutation(const Target& target, std::span<const std::string> seeds, std::uint64_t number);

}  // namespace moeloom::fuzz
