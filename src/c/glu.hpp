// A gated activation as callers name it.
#pragma once

#include "moeloom/c/moeloom.h"
#include "moeloom/kernels/elementwise/swiglu.hpp"

namespace moeloom::c {

/// NULL: silu. Throws ConfigError for an unknown kind, ShapeError for settings that exclude each other.
GatedActivation activation_of(const ml_glu_settings* settings);

}  // namespace moeloom::c
