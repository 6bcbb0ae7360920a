// A block of a routing file: ids and weights of one layer as planes of bytes, compressed.
#pragma once

#include "moeloom/io/routing_file.hpp"

namespace moeloom {

/// routing [T, K] -> a zstd frame.
std::vector<std::byte> compressed_planes(const RecordedRouting& routing);

/// The opposite, for `slots` = T * K. Throws IoError, its text begun with `origin`, for a frame that is none
/// or holds another number of bytes.
RecordedRouting routing_of_planes(std::span<const std::byte> frame, Index slots, const std::string& origin);

}  // namespace moeloom
