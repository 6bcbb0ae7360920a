#include "routing_planes.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <array>
#include <zstd.h>

namespace moeloom {
namespace {

constexpr std::size_t kPlanes = 4;
constexpr std::uint16_t kNoExpertBits = 0xFFFF;
// A block that unpacks to more than kFree bytes has at least one byte of its own for kMostGrowth of them: a
// file of 100 KB could otherwise ask for gigabytes.
constexpr std::size_t kFree = std::size_t{1} << 20;
constexpr std::size_t kMostGrowth = 1024;
constexpr int kLevel = 3;  // zstd's own default; 9 took 4 times as long for 9 % less

std::byte low(std::uint16_t bits) {
  return static_cast<std::byte>(bits & 0xFF);
}
std::byte high(std::uint16_t bits) {
  return static_cast<std::byte>(bits >> 8);
}
std::uint16_t joined_bits(std::byte low, std::byte high) {
  return static_cast<std::uint16_t>(static_cast<unsigned>(low) | static_cast<unsigned>(high) << 8);
}

std::vector<std::byte> planes_of(const RecordedRouting& routing) {
  const std::size_t slots = routing.topk_idx.size();
  std::vector<std::byte> planes(kPlanes * slots);
  for (std::size_t i = 0; i < slots; ++i) {
    const std::int32_t expert = routing.topk_idx[i];
    const auto id = expert < 0 ? kNoExpertBits : static_cast<std::uint16_t>(expert);
    const std::uint16_t weight = float_to_f16(routing.topk_weights[i]);
    planes[i] = low(id);
    planes[slots + i] = high(id);
    planes[2 * slots + i] = low(weight);
    planes[3 * slots + i] = high(weight);
  }
  return planes;
}

/// Bytes that a block of so many must have.
std::size_t least_bytes(std::size_t planes) {
  return planes <= kFree ? 0 : planes / kMostGrowth;
}

/// A frame that zstd skips, where all tokens went the same way and next to nothing was left.
void pad(std::vector<std::byte>& frame, std::size_t least) {
  if (frame.size() >= least) return;
  constexpr std::uint32_t kSkippable = 0x184D2A50;  // of RFC 8878
  const std::array<std::uint32_t, 2> head = {kSkippable, static_cast<std::uint32_t>(least - frame.size())};
  const auto bytes = std::as_bytes(std::span(head));
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  frame.resize(frame.size() + head[1]);
}

/// The frame says how many bytes it holds; one that lies is caught by zstd, which writes no more than there
/// is room for.
std::vector<std::byte> decompressed(std::span<const std::byte> frame, std::size_t bytes,
                                    const std::string& origin) {
  const unsigned long long said = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (said == ZSTD_CONTENTSIZE_ERROR || said == ZSTD_CONTENTSIZE_UNKNOWN)
    throw IoError(origin + ": expected a zstd frame that says its size, found none");
  if (said != bytes)
    throw IoError(origin + ": expected " + std::to_string(bytes) + " bytes of ids and weights, found " +
                  std::to_string(said));
  if (frame.size() < least_bytes(bytes))
    throw IoError(origin + ": " + std::to_string(frame.size()) + " bytes cannot hold " +
                  std::to_string(bytes) + " bytes of ids and weights");
  std::vector<std::byte> planes(bytes);
  const std::size_t written = ZSTD_decompress(planes.data(), planes.size(), frame.data(), frame.size());
  if (ZSTD_isError(written) != 0)
    throw IoError(origin + ": zstd refuses it: " + std::string(ZSTD_getErrorName(written)));
  if (written != bytes)
    throw IoError(origin + ": expected " + std::to_string(bytes) + " bytes, found " +
                  std::to_string(written));
  return planes;
}

}  // namespace

std::vector<std::byte> compressed_planes(const RecordedRouting& routing) {
  const std::vector<std::byte> planes = planes_of(routing);
  std::vector<std::byte> frame(ZSTD_compressBound(planes.size()));
  const std::size_t bytes = ZSTD_compress(frame.data(), frame.size(), planes.data(), planes.size(), kLevel);
  if (ZSTD_isError(bytes) != 0)
    throw IoError("zstd cannot compress a block: " + std::string(ZSTD_getErrorName(bytes)));
  frame.resize(bytes);
  pad(frame, least_bytes(planes.size()));
  return frame;
}

RecordedRouting routing_of_planes(std::span<const std::byte> frame, Index slots, const std::string& origin) {
  const auto count = static_cast<std::size_t>(slots);
  const std::vector<std::byte> planes = decompressed(frame, kPlanes * count, origin);
  RecordedRouting routing;
  routing.topk_idx.resize(count);
  routing.topk_weights.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t id = joined_bits(planes[i], planes[count + i]);
    routing.topk_idx[i] = id == kNoExpertBits ? -1 : id;
    routing.topk_weights[i] = f16_to_float(joined_bits(planes[2 * count + i], planes[3 * count + i]));
  }
  return routing;
}

}  // namespace moeloom
