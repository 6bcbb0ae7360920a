// What a CPU multiplies bf16 with. Questions about the CPU this process runs on; no collective, and ranks may
// have different ones.
#pragma once

#include <optional>
#include <string_view>

namespace moeloom {

/// In the order of their speed. kTiles adds up its products in an order of its own, so its bits differ from
/// the others'; kEmulated has the bits of kPairs, except where denormals count as zero.
enum class Bf16Unit {
  kEmulated,  // fp32 instructions, slowly
  kPairs,     // dot products of two pairs (AVX512_BF16)
  kTiles,     // products of tiles of 16 rows (AMX): 16 times the peak of fp32 multiply-adds
};

/// The fastest that the library was built with and that the CPU and the system's kernel allow.
Bf16Unit best_bf16_unit();
/// "emulated", "pairs", "tiles".
std::string_view name_of(Bf16Unit unit);

/// Which of them products may use. kBest: the best but kEmulated. kPairs: pairs at the most, whose bits are
/// the same on CPUs with and without tiles. kEmulate: the best, emulation included.
enum class Bf16Request { kBest, kPairs, kEmulate };
/// text: "emulate" or "pairs", without spaces and in lower case; none for anything else.
std::optional<Bf16Request> bf16_request_from_text(std::string_view text);
inline constexpr std::string_view kBf16RequestTexts = "emulate, pairs";

/// For measurements: so many products of tiles in registers alone, each of 16 rows, 16 columns and a depth of
/// 32 numbers. Only where best_bf16_unit() is kTiles.
void multiply_tiles_in_registers(int products);

/// Whether products in bf16 are made of bf16 instructions here.
bool cpu_has_bf16();
/// Why not, for people; empty if they are.
std::string_view why_no_bf16();

}  // namespace moeloom
