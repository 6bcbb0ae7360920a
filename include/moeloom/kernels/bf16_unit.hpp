// What a CPU multiplies bf16 with.
#pragma once

#include <optional>
#include <string_view>

namespace moeloom {

/// In the order of their speed. Products add up in an order of their own in kTiles; kEmulated has the bits of
/// kPairs, except where denormals count as zero.
enum class Bf16Unit {
  kEmulated,  // fp32 instructions, slowly
  kPairs,     // dot products of two pairs (AVX512_BF16)
  kTiles,     // products of tiles of 16 rows (AMX): 16 times the peak of fp32 multiply-adds
};

/// The fastest that the build uses and that the CPU and the kernel of the system allow.
Bf16Unit best_bf16_unit();
/// "emulated", "pairs", "tiles".
std::string_view name_of(Bf16Unit unit);

/// Which of them products may use: the best; pairs at the most, whose bits are the same on CPUs with and
/// without tiles; or any, emulation included.
enum class Bf16Request { kBest, kPairs, kEmulate };
/// text: trimmed and in lower case; none if it is not one of kBf16RequestTexts.
std::optional<Bf16Request> bf16_request_from_text(std::string_view text);
inline constexpr std::string_view kBf16RequestTexts = "emulate, pairs";

/// For measurements of kTiles, which the CPU must have: so many products of tiles in registers alone, each of
/// 16 rows, 16 columns and a depth of 32 numbers.
void multiply_tiles_in_registers(int products);

/// Whether products in bf16 are made of bf16 instructions here.
bool cpu_has_bf16();
/// Why not, for people; empty if they are.
std::string_view why_no_bf16();

}  // namespace moeloom
