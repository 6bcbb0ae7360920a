#include "hf/stored/mxfp4.hpp"

#include "model/hf/stored/slice_io.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace moeloom {
namespace {

constexpr Index kNumbersOfBlock = 32;
constexpr Index kBytesOfBlock = 16;

/// Sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kFp4 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                        -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

float scale_of(std::byte exponent) {
  const int value = std::to_integer<int>(exponent);
  return value == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, value - 127);
}

/// blocks and scales of one row -> its numbers.
void decode(std::span<const std::byte> blocks, std::span<const std::byte> scales, float* numbers) {
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const float scale = scale_of(scales[block]);
    for (const std::byte pair : blocks.subspan(block * at(kBytesOfBlock), at(kBytesOfBlock))) {
      const auto bits = std::to_integer<std::uint8_t>(pair);
      *numbers++ = scale * kFp4[bits & 15];
      *numbers++ = scale * kFp4[bits >> 4];
    }
  }
}

std::string part_complaint(const TensorInfo& found, const std::string& name,
                           const std::vector<Index>& shape) {
  if (found.dtype == DType::kU8 && found.shape == shape) return "";
  return "tensor " + name + ": expected U8 " + shape_text(shape) + ", found " +
         std::string(name_of(found.dtype)) + " " + shape_text(found.shape);
}

}  // namespace

std::array<std::string, 2> mxfp4_parts(const std::string& name) {
  return {name + "_blocks", name + "_scales"};
}

bool is_in_mxfp4(const SafetensorsFolder& folder, const std::string& name) {
  const auto [blocks, scales] = mxfp4_parts(name);
  return !folder.has(name) && folder.has(blocks) && folder.has(scales);
}

std::string mxfp4_complaint(const SafetensorsFolder& folder, const std::string& name,
                            const std::vector<Index>& shape) {
  const auto [blocks, scales] = mxfp4_parts(name);
  if (shape.size() != 3 || shape[1] % kNumbersOfBlock != 0)
    return "tensor " + blocks + ": MXFP4 has blocks of 32 numbers along the second size of " + name + " " +
           shape_text(shape);
  const Index in = shape[1] / kNumbersOfBlock;
  const std::string complaint =
      part_complaint(folder.info(blocks), blocks, {shape[0], shape[2], in, kBytesOfBlock});
  return complaint.empty() ? part_complaint(folder.info(scales), scales, {shape[0], shape[2], in})
                           : complaint;
}

void read_mxfp4(const SafetensorsFolder& folder, const HfSlice& slice, MatrixView rows) {
  require(slice.layout != SliceLayout::kRows, "MXFP4 keeps " + slice.name + " transposed, and it is not");
  const auto [blocks_name, scales_name] = mxfp4_parts(slice.name);
  const std::span<const std::byte> blocks = folder.file_of(blocks_name).raw(blocks_name);
  const std::span<const std::byte> scales = folder.file_of(scales_name).raw(scales_name);
  const Index out = slice.shape.back();
  const Index each = slice.shape[1] / kNumbersOfBlock;  // blocks of a row
  const Index expert = slice.source_begin / (slice.shape[1] * out);
  for (Index r = 0; r < rows.rows; ++r) {
    const Index column = place_in_file(slice, rows.cols, r * rows.cols) % out;
    const Index first = (expert * out + column) * each;
    decode(blocks.subspan(at(first * kBytesOfBlock), at(each * kBytesOfBlock)),
           scales.subspan(at(first), at(each)), rows.row(r));
  }
}

}  // namespace moeloom
