// The heading of a routing file as text and back.
#pragma once

#include "moeloom/io/routing_file.hpp"

namespace moeloom {

inline constexpr Index kMostRecordedExperts = 0xFFFF;        // two bytes, one value of which is no expert
inline constexpr Index kMostRecordedSlots = Index{1} << 28;  // T * K: a block of 1 GiB
inline constexpr Index kMostRecordedLayers = Index{1} << 16;
inline constexpr Index kMostRecordedSteps = Index{1} << 40;  // times tokens, it is still a number

/// One line of JSON.
std::string text_of(const RoutingHeading& heading);
/// Throws IoError naming `origin`: not JSON, another format or version, or sizes that no file can have.
RoutingHeading routing_heading(const std::string& text, const std::string& origin);
/// What is wrong with its sizes; empty: nothing.
std::string why_not_a_heading(const RoutingHeading& heading);

}  // namespace moeloom
