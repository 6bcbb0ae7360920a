// A product whose right side is packed on the way, straight from the master: for weights that are used a few
// times before they change, so that keeping packed faces would cost more than it saves.
#pragma once

#include <array>
#include <type_traits>

#include "tile/left_side.hpp"
#include "tile/pack_block.hpp"
#include "tile/packed_face.hpp"

namespace moeloom::packed {

/// Rows that multiply_master() takes at most: a panel is packed once for all of them. Half as many
/// again as fit the second-level cache: they take less from the third than packing every panel twice.
inline constexpr Index kMasterRows = 384;

/// Panels that are packed at a time: where the depth goes down the master's rows, lines of memory in a row
/// come faster than those of one panel. Not beside matrices, for which they would come too late.
template <typename Element, typename Side>
inline constexpr Index kTogether = std::is_same_v<Side, Down> && !kOfMatrices<Element> ? 4 : 1;

/// A thread's memory: about a megabyte, too much for a stack that somebody has made small.
template <typename Element>
struct MasterWorkspace {
  LeftSide<Element, kMasterRows> left;
  alignas(64) std::array<std::array<float, kTogether<Element, Down> * kTileDepth * kTileCols>, 2> panels;
};

/// These panels' columns of y [rows, cols] (+)= x [rows, numbers] times the right side that Side (Along,
/// Down) sees in the master, on this thread; the bits of Face::multiply.
template <typename Element, typename Side>
void multiply_master(ConstRows master, Stretch range, ConstRows x, MatrixView y, Write mode,
                     MasterWorkspace<Element>& work);

}  // namespace moeloom::packed
