// Which way rows travel, and why: a pure function of the mesh, the machine and the sizes.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace moeloom {

/// alltoall: packed, MPI_Alltoallv, regrouped. shared: written in place into memory of the node.
enum class DispatcherKind { kAuto, kAlltoall, kShared };
inline constexpr std::array kDispatcherKinds = {DispatcherKind::kAuto, DispatcherKind::kAlltoall,
                                                DispatcherKind::kShared};
/// As it is written: "auto", "alltoall", "shared".
std::string_view name_of(DispatcherKind kind);
std::optional<DispatcherKind> dispatcher_kind_from_text(std::string_view text);

struct DispatcherFacts {
  Index ep_ranks = 1;
  Index ep_nodes = 1;               // the most nodes that the ranks of one ep row lie on
  std::string no_node_memory = {};  // why ranks cannot open each other's memory; empty: they can
  Index bytes_per_pair = 0;         // expected from one rank to another in one exchange, if experts are even
};

struct DispatcherChoice {
  DispatcherKind kind = DispatcherKind::kAlltoall;  // never kAuto
  std::string reason;
};

/// Pure. auto: the fastest that can run, the reason carrying the facts it was chosen by. Throws ConfigError
/// with the way out for a kind asked for by name that cannot run.
DispatcherChoice decide_dispatcher(DispatcherKind request, const DispatcherFacts& facts);

}  // namespace moeloom
