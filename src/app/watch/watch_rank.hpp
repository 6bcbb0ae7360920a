// What a watcher does from its start to the end of its rank.
#pragma once

#include <functional>
#include <span>
#include <sys/types.h>

#include "watch/stall_watch.hpp"

namespace moeloom {

/// Until the rank has ended; then what it left on the node is removed. The caller ends the process at once: a
/// thread of it may hang in a disk. end_rank: called when the rank is to be ended from outside, after what
/// was found was said. command_line: memory that ps shows, for "moeloom-watch RUN".
void watch_rank(const PositionBoard& board, WatchOrder& order, pid_t rank, std::span<char> command_line,
                const std::function<void()>& end_rank);

}  // namespace moeloom
