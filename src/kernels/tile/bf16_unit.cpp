#include "moeloom/kernels/bf16_unit.hpp"

#include "tile/matrix_tile.hpp"
#include "tile/pair_tile.hpp"

namespace moeloom {

Bf16Unit best_bf16_unit() {
  if (packed::has_matrix_registers()) return Bf16Unit::kTiles;
  return cpu_has_bf16() ? Bf16Unit::kPairs : Bf16Unit::kEmulated;
}

std::string_view name_of(Bf16Unit unit) {
  switch (unit) {
    case Bf16Unit::kEmulated:
      return "emulated";
    case Bf16Unit::kPairs:
      return "pairs";
    case Bf16Unit::kTiles:
      return "tiles";
  }
  return {};
}

std::optional<Bf16Request> bf16_request_from_text(std::string_view text) {
  if (text == "emulate") return Bf16Request::kEmulate;
  if (text == "pairs") return Bf16Request::kPairs;
  return std::nullopt;
}

void multiply_tiles_in_registers(int products) {
  packed::multiply_matrix_registers(products);
}

std::string_view why_no_bf16() {
  if (!packed::cpu_multiplies_pairs()) return "this CPU has no AVX512_BF16 instructions";
  if (!packed::built_with_pairs()) return "this program was built without AVX512_BF16 instructions";
  return {};
}

bool cpu_has_bf16() {
  return why_no_bf16().empty();
}

}  // namespace moeloom
