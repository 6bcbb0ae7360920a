#include "kernels/dropout.hpp"

#include "base/checksum.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 16;

/// x where random bits are not below a number, else 0. A row at a time, so that the loop is vectorised.
template <typename Number>
void keep_row(std::uint32_t counter, std::uint32_t dropped_below, const Number* x, Index cols, Number* kept) {
  for (Index j = 0; j < cols; ++j, counter += RandomBits::kStep)
    kept[j] = RandomBits::mixed(counter) < dropped_below ? Number{0} : x[j];
}

void add_kept_row(std::uint32_t counter, std::uint32_t dropped_below, const float* x, Index cols,
                  float* sum) {
  for (Index j = 0; j < cols; ++j, counter += RandomBits::kStep)
    sum[j] += RandomBits::mixed(counter) < dropped_below ? 0.0f : x[j];
}

/// use(row) in parallel.
template <typename Use>
void for_each_row(Index rows, Use&& use) {
  parallel_blocks(rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) use(row);
  });
}

}  // namespace

void find_row_keys(ConstRows x, std::span<std::uint64_t> keys) {
  require(std::ssize(keys) == x.rows(), "there must be a key for each row");
  x.visit([&](auto view) {
    for_each_row(view.rows, [&](Index row) {
      keys[at(row)] = checksum(std::as_bytes(std::span(view.row(row), at(view.cols))));
    });
  });
}

std::vector<std::uint64_t> row_keys(ConstRows x) {
  std::vector<std::uint64_t> keys(at(x.rows()));
  find_row_keys(x, keys);
  return keys;
}

InputMask::InputMask(const Dropout& dropout, std::uint64_t stream)
    : salt_(CounterRandom(dropout.seed, stream).bits(0)),
      dropped_below_(static_cast<std::uint32_t>(std::min(dropout.share * 0x1p32, 0x1p32 - 1))) {
  require(dropout.share >= 0 && dropout.share < 1, "a dropout must lie in [0, 1)");
}

void InputMask::keep(RowKeys keys, ConstRows x, Rows kept, Index first_column) const {
  require(std::ssize(keys) == x.rows(), "a dropout needs a key for each row");
  std::visit(
      [&](auto to) {
        x.visit([&](auto from) {
          if constexpr (std::is_same_v<decltype(from),
                                       BasicView<const std::remove_pointer_t<decltype(to.data)>>>) {
            require(to.rows == from.rows && to.cols == from.cols, "a dropout keeps the shape of its rows");
            for_each_row(from.rows, [&](Index row) {
              keep_row(RandomBits(keys[at(row)] ^ salt_).counter(first_column), dropped_below_, from.row(row),
                       from.cols, to.row(row));
            });
          } else {
            require(false, "a dropout keeps the type of its rows");
          }
        });
      },
      kept);
}

void InputMask::add_kept(RowKeys keys, ConstMatrixView x, MatrixView sum) const {
  require(std::ssize(keys) == x.rows && sum.rows == x.rows && sum.cols == x.cols,
          "a dropout needs a key for each row, and adds to rows of the same shape");
  for_each_row(x.rows, [&](Index row) {
    add_kept_row(RandomBits(keys[at(row)] ^ salt_).counter(0), dropped_below_, x.row(row), x.cols,
                 sum.row(row));
  });
}

}  // namespace moeloom
