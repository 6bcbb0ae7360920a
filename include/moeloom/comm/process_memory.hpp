// Memory of a rank: what it would need were it alone on its node.
//
// The resident set that the system counts holds every page that a process touched, those of its peers' memory
// among them, into which a shared dispatcher writes: each row would count once for its owner and again for
// whoever sent it. So pages that are shared are left out, and those that this rank owns are added.
#pragma once

#include "moeloom/comm/node_memory.hpp"

namespace moeloom {

/// Bytes of this process in memory that it shares with no other: its heap and its stacks (RssAnon), and files
/// that it mapped (RssFile). A system that does not tell them apart gives all that is resident.
Index private_bytes();

/// Bytes of this machine's memory, whoever uses them.
Index memory_of_this_node();

/// private_bytes() and those that this rank holds of `memory`, which may be null.
Index held_bytes(const NodeMemory* memory);

}  // namespace moeloom
