// Arrays that another program hands to moeloom.h: sizes that overflow, strides, no data, NULL, other dtypes.
//
// An input is a function, sizes, and for each array a byte that says how it differs from what the function
// asks for. What an array claims is really there, in memory of its own that ends where it does; claims that
// only the caller could keep are not made. Arguments of a call are made in the order of the compiler, so that
// a finding of one compiler is another input of the other: it becomes a test in tests/c.
#pragma once

#include "moeloom/c/moeloom.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"

namespace moeloom::fuzz {

/// An array that would need more memory than a fuzzer has, and which no library could tell from a right one.
struct NotClaimed {};

inline constexpr std::array<std::int64_t, 13> kSizes = {0,
                                                        1,
                                                        -1,
                                                        3,
                                                        1 << 20,
                                                        0x7fffffff,
                                                        0x80000000,
                                                        INT64_C(1) << 40,
                                                        INT64_C(1) << 60,
                                                        INT64_C(1) << 61,
                                                        INT64_C(1) << 62,
                                                        INT64_MAX,
                                                        INT64_MIN};
inline constexpr std::array<std::int64_t, 8> kBytes = {4, 2, 2, 8,
                                                       4, 1, 8, 8};  // the last one of an unknown dtype
inline constexpr double kMostElements = 1 << 14;
inline constexpr double kNoMachineHas = 0x1p60;  // of 8 bytes each, more than an int64_t counts

/// The input, a byte after the other; behind its end zeros.
class Bytes {
 public:
  explicit Bytes(std::string_view input) : left_(input) {}
  std::uint8_t next() {
    if (left_.empty()) return 0;
    const auto byte = static_cast<std::uint8_t>(left_[0]);
    left_.remove_prefix(1);
    return byte;
  }
  /// Below 200 one of 0 to most, above one of kSizes.
  std::int64_t number(std::int64_t most) {
    const std::uint8_t byte = next();
    return byte < 200 ? byte % (most + 1) : kSizes[byte % kSizes.size()];
  }
  std::int64_t size() { return next() % 6; }

 private:
  std::string_view left_;
};

/// The arrays of one call.
class Arrays {
 public:
  explicit Arrays(Bytes& bytes) : bytes_(bytes) {}

  const ml_array* floats(std::initializer_list<std::int64_t> shape) {
    const ml_array* array = made(shape, ML_F32);
    if (array != nullptr) fill_floats();
    return array;
  }
  /// Below `end`, or any number.
  const ml_array* integers(std::initializer_list<std::int64_t> shape, std::int64_t end) {
    const ml_array* array = made(shape, ML_I64);
    if (array != nullptr) fill_integers(*array, end);
    return array;
  }
  const ml_array* doubles(std::initializer_list<std::int64_t> shape) { return made(shape, ML_F64); }
  /// Or none, as the function allows.
  const ml_array* optional(std::initializer_list<std::int64_t> shape) {
    return bytes_.next() % 2 == 0 ? nullptr : floats(shape);
  }
  const ml_weights* weights(std::int64_t experts, std::int64_t rows, std::int64_t cols) {
    const bool apart = bytes_.next() % 2 == 1;
    list_.clear();
    for (std::int64_t i = 0; i < (apart ? experts : 1); ++i) {
      const ml_array* each = apart ? floats({rows, cols}) : floats({experts, rows, cols});
      list_.push_back(each == nullptr ? ml_array{} : *each);
    }
    weights_ = {list_.empty() ? nullptr : list_.data(), static_cast<std::int64_t>(list_.size()),
                bytes_.next() < 200 ? ML_OUT_IN : ML_IN_OUT};
    return &weights_;
  }

 private:
  const ml_array* made(std::initializer_list<std::int64_t> shape, std::int32_t dtype) {
    ml_array& array = arrays_.emplace_back();
    array.ndim = static_cast<std::int32_t>(shape.size());
    array.dtype = dtype;
    std::copy(shape.begin(), shape.end(), array.shape);
    const std::uint8_t kind = bytes_.next();
    std::uint64_t stride = 1;  // which may wrap
    for (std::int32_t dim = array.ndim - 1; dim >= 0; --dim) {
      array.stride[dim] = static_cast<std::int64_t>(stride);
      stride *= static_cast<std::uint64_t>(array.shape[dim]);
      if (dim == array.ndim - 1) stride += kind & 3;  // a gap
    }
    offset_ = kind >> 2 & 3;
    if (kind >> 4 & 1) array.dtype = static_cast<std::int32_t>(bytes_.next() % 8);
    if (kind >> 5 & 1) change(array);
    if (kind >> 6 & 1) change(array);
    if (kind >> 7 & 1 && bytes_.next() % 4 == 0) return nullptr;
    hold(array);
    return &array;
  }

  void change(ml_array& array) {
    const std::uint8_t what = bytes_.next();
    const std::int64_t number = kSizes[bytes_.next() % kSizes.size()];
    if (what % 8 == 0)
      array.ndim = static_cast<std::int32_t>(number);
    else if (what % 8 < 5)
      array.shape[what % 4] = number;
    else
      array.stride[what % 4] = number;
  }

  /// Memory for what it claims, up to the last byte. A size that the header forbids needs none, nor does such
  /// a stride where it leads to another element.
  void hold(ml_array& array) {
    std::vector<std::byte>& memory = memory_.emplace_back();
    array.data = nullptr;
    if (array.ndim < 1 || array.ndim > ML_MAX_DIMS) return;
    double elements = 1, last = 0;
    bool forbidden = false;
    for (std::int32_t dim = 0; dim < array.ndim; ++dim) {
      forbidden = forbidden || array.shape[dim] < 0 || (array.shape[dim] > 1 && array.stride[dim] < 0);
      elements *= static_cast<double>(array.shape[dim]);
      last += (static_cast<double>(array.shape[dim]) - 1) * static_cast<double>(array.stride[dim]);
    }
    const bool has_none = std::find(array.shape, array.shape + array.ndim, 0) != array.shape + array.ndim;
    const bool refused = forbidden || elements >= kNoMachineHas || last >= kNoMachineHas;
    if (has_none || refused) {
      if (bytes_.next() % 2 == 0) array.data = memory_.emplace_back(64).data();
      return;
    }
    if (elements > kMostElements || last > kMostElements) throw NotClaimed();
    const std::int64_t bytes = static_cast<std::int64_t>(last + 1) * kBytes[array.dtype % 8];
    memory.resize(static_cast<std::size_t>(bytes + offset_));
    array.data = memory.data() + offset_;
  }

  void fill_floats() {
    const std::uint8_t seed = bytes_.next();
    std::uint32_t number = seed;
    for (std::byte& byte : memory_.back()) {
      number = number * 1664525 + 1013904223;
      byte =
          static_cast<std::byte>(number >> 24 & (seed < 200 ? 0x3f : 0xff));  // 0xff: also infinity and NaN
    }
  }
  void fill_integers(const ml_array& array, std::int64_t end) {
    std::vector<std::byte>& memory = memory_.back();
    const auto width = static_cast<std::size_t>(kBytes[array.dtype % 8]);
    for (std::size_t at = offset_; at + width <= memory.size(); at += width) {
      const std::int64_t number = bytes_.number(end > 0 ? end - 1 : 0);
      std::memcpy(&memory[at], &number, width);
    }
  }

  Bytes& bytes_;
  std::size_t offset_ = 0;
  std::deque<ml_array> arrays_;
  std::deque<std::vector<std::byte>> memory_;
  std::vector<ml_array> list_;
  ml_weights weights_{};
};

inline std::int32_t choice(Bytes& in) {
  return static_cast<std::int32_t>(in.number(2));
}

using Call = ml_status (*)(Bytes&, Arrays&);

/// calls[first byte] of arrays that the others say.
template <typename Calls>
void run_call(const Calls& calls, std::string_view input) {
  static const ml_status one_thread = ml_set_threads(1);
  expect(one_thread == ML_OK, "threads are refused");
  Bytes in(input);
  Arrays arrays(in);
  try {
    const ml_status status = calls[in.next() % calls.size()](in, arrays);
    expect(status >= ML_OK && status <= ML_OTHER, "a status that the header does not have");
    expect(status == ML_OK || *ml_last_error() != 0, "a call failed without a word");
  } catch (const NotClaimed&) {
  }
}

/// Each call with sizes of 2 and right arrays, and with first arrays that are wrong.
inline std::vector<std::string> seeds_of(std::size_t calls) {
  std::vector<std::string> seeds;
  for (std::size_t call = 0; call < calls; ++call)
    for (const char wrong : {'\0', '\x21', '\x31'})
      seeds.push_back(static_cast<char>(call) + std::string("\2\2\2\2", 4) + std::string(4, wrong) +
                      std::string(40, '\0'));
  return seeds;
}
/// Bytes that change an array.
inline const std::vector<std::string> kArrayWords = {std::string("\x20\1", 2), std::string("\x20\5", 2),
                                                     "\xc8", "\xff"};

/// The target of a table of calls.
template <const auto& calls>
Target target_of(const char* name) {
  return {name, [](std::string_view input) { run_call(calls, input); }, [] { return seeds_of(calls.size()); },
          kArrayWords};
}

std::vector<Target> c_layer_targets();
std::vector<Target> c_files_targets();

}  // namespace moeloom::fuzz
