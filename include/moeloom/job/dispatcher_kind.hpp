// The ways that rows can travel between the ranks of ep, and how they cross between nodes.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <optional>
#include <string_view>

namespace moeloom {

/// kAlltoall: packed, sent from rank to rank, regrouped. kShared: written in place into memory that the ranks
/// of a node share, for ep rows on one node. kHierarchical: once to each other node, and there as kShared.
enum class DispatcherKind { kAlltoall, kShared, kHierarchical };
inline constexpr std::array kDispatcherKinds = {DispatcherKind::kAlltoall, DispatcherKind::kShared,
                                                DispatcherKind::kHierarchical};
/// As it is written: "alltoall", "shared", ...
std::string_view name_of(DispatcherKind kind);
/// The inverse, exactly as written; none for anything else.
std::optional<DispatcherKind> dispatcher_kind_from_text(std::string_view text);

/// What a node returns of a token with several experts there, with kHierarchical. kExact: each expert's row,
/// so that sums run in slot order and have the bits of every other dispatcher. kFast: their sum, in fewer
/// bytes.
enum class CombineMode { kExact, kFast };

/// What the numbers of a row are sent in, with kHierarchical between nodes alone; sums stay fp32.
enum class WireDType { kFp32, kBf16 };

}  // namespace moeloom
