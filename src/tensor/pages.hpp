// Memory that is given back to the system by the page.
#pragma once

#include <span>

namespace moeloom {

/// The values become zeros; the pages that they fill take no memory until they are written again. Of this
/// process's own memory, not of what it shares.
void drop(std::span<float> values);

}  // namespace moeloom
