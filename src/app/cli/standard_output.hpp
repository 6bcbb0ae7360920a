// Whether what was printed got out: a disk may be full, a pipe closed.
#pragma once

namespace moeloom {

/// Sends out what std::cout and printf still hold. Throws DiskError where something was not taken, now or
/// before.
void finish_standard_output();

}  // namespace moeloom
