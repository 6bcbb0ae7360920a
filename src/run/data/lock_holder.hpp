// Who holds a lock: what it writes into the file for others, and how they read it.
#pragma once

#include <string>

namespace moeloom {

/// This process: its host, its number and the time.
std::string holder_text();

/// "process 4711 on host node3 since 2026-11-22 10:00:00 UTC"
std::string described_holder(const std::string& text);

}  // namespace moeloom
