#include "sum.hpp"

#include "comm/travelling_sums.hpp"
#include "comm/travelling_weights.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

constexpr Index kAtOnce = 4;
constexpr std::uint64_t kFirstHash = 14695981039346656037u;
/// Numbers from which an array travels by itself; smaller ones go together.
constexpr Index kByItself = Index{1} << 16;

/// What is summed as one, divided among the ranks.
struct Piece {
  Piece(std::span<float> numbers, Index ranks) : numbers(numbers), offsets(at(ranks + 1)) {
    for (Index rank = 0; rank <= ranks; ++rank) offsets[at(rank)] = std::ssize(numbers) * rank / ranks;
  }
  std::span<float> part(Index rank) const {
    return numbers.subspan(at(offsets[at(rank)]), at(offsets[at(rank + 1)] - offsets[at(rank)]));
  }
  std::span<float> numbers;
  std::vector<Index> offsets;
};

void add_up(const Communicator& ranks, const std::vector<Piece>& pieces) {
  TravellingSums sums(kAtOnce);
  for (const Piece& piece : pieces)
    sums.begin({.ranks = &ranks,
                .gradients = std::as_writable_bytes(piece.numbers),
                .offsets = piece.offsets,
                .done = [] {}});
  sums.finish();
}

void spread(const Communicator& ranks, const std::vector<Piece>& pieces) {
  TravellingWeights weights(kAtOnce);
  for (Index place = 0; place < std::ssize(pieces); ++place) {
    TravellingWeights::Stretched stretch{.ranks = &ranks, .parts = {}, .place = place};
    for (Index rank = 0; rank < ranks.size(); ++rank)
      stretch.parts.push_back(std::as_writable_bytes(pieces[at(place)].part(rank)));
    weights.begin(std::move(stretch));
  }
  weights.await(std::ssize(pieces));
}

void multiply(std::span<float> numbers, double scale) {
  if (scale == 1) return;
  parallel_blocks(std::ssize(numbers), Index{1} << 16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      numbers[at(i)] = static_cast<float>(static_cast<double>(numbers[at(i)]) * scale);
  });
}

/// FNV-1a, a number at a time.
std::uint64_t hashed(std::uint64_t before, std::uint64_t number) {
  return (before ^ number) * 1099511628211u;
}

Index size_of(const ml_array& array) {
  return rows_of(array) * cols_of(array);
}

/// visit(array, its numbers as they lie, row by row).
template <typename Visit>
void for_each_row(std::span<const ml_array* const> doubles, Visit visit) {
  for (const ml_array* array : doubles)
    for (Index row = 0; row < rows_of(*array); ++row) visit(row_at(*array, row), cols_of(*array));
}

void sum_doubles(const Communicator& ranks, std::span<const ml_array* const> arrays, double scale) {
  Index numbers = 0;
  for (const ml_array* array : arrays) numbers += size_of(*array);
  std::vector<double> joined(at(numbers));
  std::byte* place = std::as_writable_bytes(std::span(joined)).data();
  for_each_row(arrays, [&, to = place](const std::byte* row, Index cols) mutable {
    to = std::copy_n(row, cols * Index{sizeof(double)}, to);
  });
  ranks.all_sum(joined);
  for (double& number : joined) number *= scale;
  for_each_row(arrays, [&, from = place](std::byte* row, Index cols) mutable {
    std::copy_n(from, cols * Index{sizeof(double)}, row);
    from += cols * Index{sizeof(double)};
  });
}

void sum_floats(const Communicator& ranks, std::span<const ml_array* const> arrays, double scale) {
  std::vector<RowsOut> alone;
  std::vector<const ml_array*> small;
  Index together = 0;
  for (const ml_array* array : arrays) {
    const Index size = size_of(*array);
    if (size >= kByItself) {
      alone.emplace_back(*array, "an array", InPlace::kFlat, Write::kAdd);
    } else {
      small.push_back(array);
      together += size;
    }
  }
  KeptFloats joined(1, together);
  const auto each_small = [&](auto use) {
    Index begin = 0;
    for (const ml_array* array : small) {
      use(*array, MatrixView(joined.view().data + begin, rows_of(*array), cols_of(*array)));
      begin += size_of(*array);
    }
  };
  each_small([](const ml_array& array, MatrixView place) { load(array, place); });
  std::vector<Piece> pieces;
  for (const RowsOut& rows : alone) pieces.emplace_back(rows.flat(), ranks.size());
  if (together > 0) pieces.emplace_back(joined.view().flat(), ranks.size());
  if (ranks.size() > 1) add_up(ranks, pieces);
  for (const Piece& piece : pieces) multiply(piece.part(ranks.rank()), scale);
  if (ranks.size() > 1) spread(ranks, pieces);
  for (const RowsOut& rows : alone) rows.store();
  each_small([](const ml_array& array, MatrixView place) { write_floats(place, array, "an array"); });
}

}  // namespace

std::string text_of_sum(std::span<const ml_array* const> arrays) {
  Index numbers = 0;
  std::uint64_t sizes = kFirstHash;
  for (const ml_array* array : arrays) {
    const Index size = size_of(check_array(array, "an array"));
    if (array->dtype != ML_F32 && array->dtype != ML_BF16 && array->dtype != ML_F16 && array->dtype != ML_F64)
      refuse_type(*array, "an array", "ML_F32, ML_BF16, ML_F16 or ML_F64");
    check_apart(*array, "an array");
    check(!__builtin_add_overflow(numbers, size, &numbers),
          [] { return "the arrays have more numbers than can be counted"; });
    sizes = hashed(hashed(sizes, at(size)), array->dtype == ML_F64 ? 1 : 0);
  }
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), " of %lld numbers in %lld arrays, %08llx",
                static_cast<long long>(numbers), static_cast<long long>(std::ssize(arrays)),
                static_cast<unsigned long long>((sizes ^ sizes >> 32) & 0xffffffff));
  return text.data();
}

void sum_over(const Communicator& ranks, std::span<const ml_array* const> arrays, double scale) {
  std::vector<const ml_array*> floats, doubles;
  for (const ml_array* array : arrays) (array->dtype == ML_F64 ? doubles : floats).push_back(array);
  if (!floats.empty()) sum_floats(ranks, floats, scale);
  if (!doubles.empty()) sum_doubles(ranks, doubles, scale);
}

}  // namespace moeloom::c
