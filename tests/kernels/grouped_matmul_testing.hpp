// Groups of rows, weights and results that the tests of grouped matmul share.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

#include <cstring>
#include <ostream>
#include <utility>
#include <vector>

#include "support/random_matrix.hpp"

namespace moeloom::testing {

struct Case {
  Index out;
  Index in;
  std::vector<Index> rows;  // a group's rows by source, group after group
  Index sources = 1;
  GroupedRows grouped() const { return {rows, sources}; }
  Index groups() const { return grouped().groups(); }
};

inline std::ostream& operator<<(std::ostream& stream, const Case& c) {
  stream << "out " << c.out << ", in " << c.in << ", sources " << c.sources << ", rows";
  for (const Index n : c.rows) stream << ' ' << n;
  return stream;
}

/// Shapes at both sides of every tile and pass, each with every routing; groups of many sources.
inline std::vector<Case> cases() {
  std::vector<Case> all;
  const std::vector<std::vector<Index>> routings = {{0, 0, 0},  {1, 0, 0},    {0, 97, 0},
                                                    {5, 64, 2}, {13, 0, 199}, {300, 1, 31}};
  for (const auto& [out, in] : std::vector<std::pair<Index, Index>>{
           {20, 12}, {1, 1}, {1, 17}, {17, 1}, {72, 20}, {12, 72}, {40, 768}, {768, 17}, {260, 520}})
    for (const auto& routing : routings) all.push_back({out, in, routing});
  all.push_back({33, 20, {}});
  all.push_back({33, 20, {7}});
  all.push_back({72, 530, {3, 0, 4, 1, 0, 0, 0, 0, 270, 300, 0, 2}, 4});
  all.push_back({257, 12, {0, 5, 9, 1, 1, 0}, 3});
  all.push_back({65, 1061, {0, 7, 1}});                   // odd, and deeper than one pass in bf16
  all.push_back({37, 2100, {8, 48, 20, 16, 41, 9, 31}});  // few rows, deeper than they are packed at a time
  return all;
}

/// Operands and results of one case; results start as `before`.
struct Problem {
  explicit Problem(const Case& c)
      : rows(c.grouped()),
        masters(random_matrix(c.groups() * c.out, c.in, 1)),
        x(random_matrix(rows.total(), c.in, 2)),
        dy(random_matrix(rows.total(), c.out, 3)),
        y(rows.total(), c.out),
        dx(rows.total(), c.in),
        dw(Matrix::copy_of(random_matrix(c.groups() * c.out, c.in, 4))) {}

  GroupedWeights weights() const { return {masters, rows.groups()}; }

  void run(const GroupedMatmulKernel& kernel, Write mode = Write::kReplace) {
    PackedWeights packed;
    if (kernel.uses_packed) packed.pack(weights(), kernel.element);
    kernel.forward(weights(), packed, x, rows, y);
    kernel.input_grad(weights(), packed, dy, rows, dx);
    kernel.weight_grad(dy, x, rows, dw, mode);
  }

  /// run() with rows that are bf16 in memory.
  void run_on_bf16_rows(const GroupedMatmulKernel& kernel, Write mode = Write::kReplace) {
    PackedWeights packed;
    if (kernel.uses_packed) packed.pack(weights(), kernel.element);
    RowMemory x_memory, dy_memory;
    const ConstRows x_rows = as_bf16(x, x_memory), dy_rows = as_bf16(dy, dy_memory);
    kernel.forward(weights(), packed, x_rows, rows, y);
    kernel.input_grad(weights(), packed, dy_rows, rows, dx);
    kernel.weight_grad(dy_rows, x_rows, rows, dw, mode);
  }

  /// Makes every operand a number that bf16 has.
  void round_to_bf16() {
    for (Matrix* operand : {&masters, &x, &dy})
      for (float& value : operand->view().flat()) value = bf16_to_float(float_to_bf16(value));
  }

  GroupedRows rows;
  Matrix masters, x, dy, y, dx, dw;
};

inline const std::vector<std::pair<const char*, GroupedMatmulKernel>> kPacked = {
    {"packed", packed_grouped_matmul()},
    {"packed bf16 pairs", packed_bf16_grouped_matmul(Bf16Unit::kPairs)},
    {"packed bf16 tiles", packed_bf16_grouped_matmul(Bf16Unit::kTiles)}};
inline const std::vector<std::pair<const char*, GroupedMatmulKernel>> kOurs = {
    kPacked[0], kPacked[1], kPacked[2], {"native", native_grouped_matmul()}};
/// Emulated where the CPU lacks one.
inline constexpr std::array kBf16Units = {Bf16Unit::kPairs, Bf16Unit::kTiles};

inline bool same_bits(ConstMatrixView a, ConstMatrixView b) {
  return a.size() == 0 || std::memcmp(a.data, b.data, a.flat().size_bytes()) == 0;
}

}  // namespace moeloom::testing
