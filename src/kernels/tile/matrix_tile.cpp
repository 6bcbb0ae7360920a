#include "tile/matrix_tile.hpp"

#include <cstdint>
#ifdef __AMX_BF16__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <immintrin.h>
#endif

namespace moeloom::packed {
namespace {

constexpr Index kMostRows = kStripRows<Bf16Matrix>;

/// Sums of a tile, a row a line of the panel's width -> c.
void write_sums(const float* sums, Index rows, const TileArguments& t) {
  if (t.cols < kTileCols && t.cols != kLanes) return write_columns(sums, rows, t);
  const bool streams = streams_lines(t);
  for (Index i = 0; i < rows; ++i, sums += kTileCols)
    for (Index j = 0; j < t.cols; j += kLanes) {
      float* c = t.c + i * t.c_stride + j;
      if (streams)
        stream_lanes(load(sums + j), c);
      else
        store(t.mode == Write::kAdd ? load(c) + load(sums + j) : load(sums + j), c);
    }
}

/// Products of a row's pairs and a panel, in the order that the instruction has.
void multiply_emulated(Index rows, const TileArguments& t) {
  using Bits = Bf16::Factor;
  const auto lower = [](Bits words) { return std::bit_cast<Lanes>(words << 16); };
  const auto upper = [](Bits words) { return std::bit_cast<Lanes>(words & 0xFFFF0000); };
  alignas(64) std::array<float, kMostRows * kTileCols> sums{};
  const Index block = padded_to(rows, kMatrixRows) * kMatrixDepth;
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < kTileCols; j += kLanes) {
      Lanes sum{};
      for (Index k = 0; k < t.depth; k += kMatrixDepth) {
        const float* left = t.left + k / kMatrixDepth * block + i * kMatrixDepth;
        Lanes even{}, odd{};
        for (Index word = 0; word < std::min(kMatrixDepth, t.depth - k); ++word) {
          const Bits a = Bf16::load_factor(left + word);
          const auto b = std::bit_cast<Bits>(load(t.panel + (k + word) * kTileCols + j));
          even = multiply_add(lower(a), lower(b), even);
          odd = multiply_add(upper(a), upper(b), odd);
        }
        sum += even + odd;
      }
      store(sum, sums.data() + i * kTileCols + j);
    }
  write_sums(sums.data(), rows, t);
}

#if defined(__AMX_BF16__) && defined(__AVX512F__)

/// Asks the kernel of the system for the registers, once for all threads.
bool registers_allowed() {
  constexpr unsigned kBf16 = 1u << 22,
                     kTile = 1u << 24;  // of CPUID leaf 7; not every compiler knows their names
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTile) == 0) return false;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

/// Every register has kMatrixRows rows of a cache line.
struct alignas(64) Configuration {
  std::uint8_t palette = 1;
  std::array<std::uint8_t, 15> unused{};
  std::array<std::uint16_t, 16> bytes_of_row{};
  std::array<std::uint8_t, 16> rows{};
};

constexpr Configuration all_registers() {
  Configuration configuration;
  for (std::size_t i = 0; i < 8; ++i) {
    configuration.bytes_of_row[i] = 64;
    configuration.rows[i] = kMatrixRows;
  }
  return configuration;
}

constexpr int kLine = 64;                             // bytes
constexpr int kPanelRow = kTileCols * sizeof(float);  // bytes

/// Registers 0 to 3: sums; 4 and 5: the left side, one for its upper rows and, if there are more, one for its
/// lower ones; 6 and 7: the panel, whose right half is left out where c is narrow.
template <bool kBoth, bool kWide>
void multiply_step(const float* left, const float* panel) {
  _tile_loadd(6, panel, kPanelRow);
  if constexpr (kWide) _tile_loadd(7, panel + kLanes, kPanelRow);
  _tile_loadd(4, left, kLine);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kWide) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kBoth) {
    _tile_loadd(5, left + kMatrixRows * kMatrixDepth, kLine);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kWide) _tile_dpbf16ps(3, 5, 7);
  }
}

template <bool kBoth, bool kWide>
void multiply_registers(Index rows, const TileArguments& t) {
  constexpr Index kBlock = (kBoth ? 2 : 1) * kMatrixRows * kMatrixDepth;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const float* left = t.left;
  const float* panel = t.panel;
  const float* ahead = t.ahead.from;
  Index times = t.ahead.times, wait = 1;
  // Sums that the tile below adds to.
  constexpr Index kRows = kBoth ? kMostRows : kMatrixRows;
  const Index step_rows = streams_lines(t) ? 0 : ceil_div(kRows * kMatrixDepth, t.depth);
  const float* wanted = t.c + (t.ahead.times == 0 ? kRows * t.c_stride : 0);
  Index k = 0;
  for (; k + kMatrixDepth <= t.depth; k += kMatrixDepth, left += kBlock, panel += kMatrixDepth * kTileCols) {
    for (Index i = 0; i < step_rows; ++i, wanted += t.c_stride)
      for (Index j = 0; j < kTileCols; j += kLineFloats) __builtin_prefetch(wanted + j, 0, 2);
    for (Index unrolled = 0; unrolled < kMatrixDepth / kUnroll; ++unrolled)
      if (times > 0 && --wait == 0) {
        for (Index line = 0; line < t.ahead.lines; ++line) ask_for(ahead + line * t.ahead.stride);
        ahead += t.ahead.advance, wait = t.ahead.every, --times;
      }
    multiply_step<kBoth, kWide>(left, panel);
  }
  if (k < t.depth) {  // what lies behind the panel need not be numbers
    alignas(64) std::array<float, kMatrixDepth * kTileCols> rest{};
    std::copy_n(panel, (t.depth - k) * kTileCols, rest.data());
    asm("" ::: "memory");  // GCC does not know that the instructions read it
    multiply_step<kBoth, kWide>(left, rest.data());
  }
  if (rows == kRows && t.cols == kTileCols && t.mode == Write::kReplace && !streams_lines(t)) {
    const auto stride = t.c_stride * static_cast<Index>(sizeof(float));
    _tile_stored(0, t.c, stride);
    _tile_stored(1, t.c + kLanes, stride);
    if constexpr (kBoth) {
      _tile_stored(2, t.c + kMatrixRows * t.c_stride, stride);
      _tile_stored(3, t.c + kMatrixRows * t.c_stride + kLanes, stride);
    }
    return;
  }
  alignas(64) std::array<float, kRows * kTileCols> sums;
  _tile_stored(0, sums.data(), kPanelRow);
  _tile_stored(1, sums.data() + kLanes, kPanelRow);
  if constexpr (kBoth) {
    _tile_stored(2, sums.data() + kMatrixRows * kTileCols, kPanelRow);
    _tile_stored(3, sums.data() + kMatrixRows * kTileCols + kLanes, kPanelRow);
  }
  write_sums(sums.data(), rows, t);
}

#endif

}  // namespace

#if defined(__AMX_BF16__) && defined(__AVX512F__)

bool has_matrix_registers() {
  static const bool allowed = registers_allowed();
  return allowed;
}

MatrixRegisters::MatrixRegisters() {
  static constexpr Configuration kConfiguration = all_registers();
  if (has_matrix_registers()) _tile_loadconfig(&kConfiguration);
}

MatrixRegisters::~MatrixRegisters() {
  if (has_matrix_registers()) _tile_release();
}

void multiply_matrix_tile(Index rows, const TileArguments& t) {
  if (!has_matrix_registers()) return multiply_emulated(rows, t);
  if (t.cols > kLanes)
    rows > kMatrixRows ? multiply_registers<true, true>(rows, t) : multiply_registers<false, true>(rows, t);
  else
    rows > kMatrixRows ? multiply_registers<true, false>(rows, t) : multiply_registers<false, false>(rows, t);
}

void multiply_matrix_registers(int products) {
  const MatrixRegisters registers;
  for (int product = 0; product < products; product += 4) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

#else

bool has_matrix_registers() {
  return false;
}

MatrixRegisters::MatrixRegisters() = default;
MatrixRegisters::~MatrixRegisters() = default;

void multiply_matrix_tile(Index rows, const TileArguments& t) {
  multiply_emulated(rows, t);
}

void multiply_matrix_registers(int) {}

#endif

}  // namespace moeloom::packed
