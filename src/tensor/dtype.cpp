#include "moeloom/tensor/dtype.hpp"

#include "moeloom/base/errors.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace moeloom {
namespace {

struct Row {
  DType type;
  std::string_view name;
  Index bytes;
};

/// Of a format that tensors may have which are copied and not read: nothing else asks for it.
constexpr DType copied(int place) {
  return static_cast<DType>(static_cast<int>(DType::kF8E8M0) + place);
}

/// By value.
constexpr std::array kTypes = {
    Row{DType::kF32, "F32", 4},        Row{DType::kBF16, "BF16", 2},      Row{DType::kF16, "F16", 2},
    Row{DType::kF64, "F64", 8},        Row{DType::kI64, "I64", 8},        Row{DType::kI32, "I32", 4},
    Row{DType::kU8, "U8", 1},          Row{DType::kF8E4M3, "F8_E4M3", 1}, Row{DType::kF8E5M2, "F8_E5M2", 1},
    Row{DType::kF8E8M0, "F8_E8M0", 1}, Row{copied(1), "BOOL", 1},         Row{copied(2), "I8", 1},
    Row{copied(3), "I16", 2},          Row{copied(4), "U16", 2},          Row{copied(5), "U32", 4},
    Row{copied(6), "U64", 8}};

const Row& row_of(DType type) {
  return kTypes[static_cast<std::size_t>(type)];
}

template <typename Stored, typename ToFloat>
void convert(const void* source, Index count, float* target, ToFloat to_float) {
  const auto* bytes = static_cast<const char*>(source);
  for (Index i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, bytes + i * static_cast<Index>(sizeof value), sizeof value);
    target[i] = to_float(value);
  }
}

}  // namespace

Index bytes_of(DType type) {
  return row_of(type).bytes;
}

std::string_view name_of(DType type) {
  return row_of(type).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::uint16_t float_to_f16(float value) {
#ifdef __aarch64__
  using Half = __fp16;  // GCC 12 knows _Float16 in C++ on x86 alone
#else
  using Half = _Float16;
#endif
  return std::bit_cast<std::uint16_t>(static_cast<Half>(value));
}

void convert_to_float(DType type, const void* source, Index count, float* target) {
  if (count == 0) return;  // memcpy refuses the null pointers of nothing
  const auto cast = [](auto value) { return static_cast<float>(value); };
  switch (type) {
    case DType::kF32:
      std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case DType::kBF16:
      return convert<std::uint16_t>(source, count, target, bf16_to_float);
    case DType::kF16:
      return convert<std::uint16_t>(source, count, target, f16_to_float);
    case DType::kF64:
      return convert<double>(source, count, target, cast);
    case DType::kI64:
      return convert<std::int64_t>(source, count, target, cast);
    case DType::kI32:
      return convert<std::int32_t>(source, count, target, cast);
    case DType::kU8:
      return convert<std::uint8_t>(source, count, target, cast);
    case DType::kF8E4M3:
      return convert<std::uint8_t>(source, count, target, f8_e4m3_to_float);
    case DType::kF8E5M2:
      return convert<std::uint8_t>(source, count, target, f8_e5m2_to_float);
    case DType::kF8E8M0:
      return convert<std::uint8_t>(source, count, target, f8_e8m0_to_float);
  }
  throw Error("numbers of the format " + std::string(name_of(type)) + " are copied, not read");
}

}  // namespace moeloom
