// Memory of a rank: what it would need were it alone on its node.
//
// The resident set that the system counts holds every page that a process touched, those of its peers' memory
// among them, into which a shared dispatcher writes: each row would count once for its owner and again for
// whoever sent it. So pages that are shared are left out, and those that this rank owns are added.
#pragma once

#include "comm/node_memory.hpp"

namespace moeloom {

/// Bytes of this process in memory that it shares with no other: its heap and its stacks (RssAnon), and files
/// that it mapped (RssFile). A system that does not tell them apart gives all that is resident.
Index private_bytes();

/// Bytes of this machine's memory, whoever uses them.
Index memory_of_this_node();

/// Bytes of this machine's memory that a process could still take, by the system's own estimate and the limit
/// of its control group; 0 where the system does not say.
Index available_memory();

/// private_bytes() and those that this rank holds of `memory`, which may be null.
Index held_bytes(const NodeMemory* memory);

/// From now on blocks of 2 MiB and more go back to the system when they are freed. Else the allocator may
/// keep them, and where sizes change from step to step that adds up. Smaller ones, packed panels of a product
/// among them, come and go all the time, and their pages would too. Does nothing where the system's allocator
/// has no such setting.
void return_freed_blocks();

/// The most that it held so far: the system's high-water mark (VmHWM), in which shared pages count as in
/// held_bytes() now.
Index peak_held_bytes(const NodeMemory* memory);

}  // namespace moeloom
