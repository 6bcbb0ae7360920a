// Where time goes: one stacked bar and its table.
#pragma once

#include <map>
#include <string>

namespace moeloom {

/// Seconds of a step by the phase's name: longest first; the short ones together. Empty if no phase took any.
std::string svg_phase_bar(const std::map<std::string, double>& seconds);

}  // namespace moeloom
