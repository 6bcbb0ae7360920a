// The ways that rows can travel, and how they cross between ranks that share no memory.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <optional>
#include <string_view>

namespace moeloom {

/// alltoall: packed, sent from rank to rank, regrouped. shared: written in place into memory of the node.
/// hierarchical: once to each other node, and there as shared.
enum class DispatcherKind { kAlltoall, kShared, kHierarchical };
inline constexpr std::array kDispatcherKinds = {DispatcherKind::kAlltoall, DispatcherKind::kShared,
                                                DispatcherKind::kHierarchical};
/// As it is written: "alltoall", "shared", ...
std::string_view name_of(DispatcherKind kind);
std::optional<DispatcherKind> dispatcher_kind_from_text(std::string_view text);

/// Whether a node returns every copy of a token's row, or their sum (moe/dispatch/crossing_plan.hpp).
enum class CombineMode { kExact, kFast };

/// Of the numbers of a row under way.
enum class WireDType { kFp32, kBf16 };

}  // namespace moeloom
