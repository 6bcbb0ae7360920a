#include "model/attention/key_value_cache.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cstring>

#include "attention/attention_layer_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// Of one column, each position's own number.
void append(KeyValueCache& cache, Index first, Index count) {
  Matrix rows(count, 1);
  for (Index i = 0; i < count; ++i) rows.row(i)[0] = static_cast<float>(first + i);
  cache.append(first, rows, rows);
}

void expect_each_position_in_its_place(const KeyValueCache& cache) {
  ASSERT_EQ(cache.keys().rows, cache.end() - cache.begin());
  for (Index position = cache.begin(); position < cache.end(); ++position) {
    ASSERT_EQ(cache.keys()(position - cache.begin(), 0), static_cast<float>(position));
    ASSERT_EQ(cache.values()(position - cache.begin(), 0), static_cast<float>(position));
  }
}

TEST(KeyValueCache, HoldsTheWindowOfWhatComesInMemoryThatTheSequenceDoesNotEnlarge) {
  for (const Index window : {1, 5, 100, 700}) {
    SCOPED_TRACE(window);
    KeyValueCache cache(3000, window, 1, 1);
    // The window, a panel and what comes before rows are moved.
    const Index most = 2 * static_cast<Index>(sizeof(float)) * (window + 128);
    Index first = 0;
    for (const Index count : {1, 7, 800, 1, 1, 300, 2}) {
      append(cache, first, count);
      first += count;
      EXPECT_LE(cache.begin(), std::max<Index>(0, first - count + 1 - window)) << "the first query's window";
      expect_each_position_in_its_place(cache);
      cache.drop_unseen();
      EXPECT_LE(cache.begin(), std::max<Index>(0, first + 1 - window)) << "the next one's";
      EXPECT_LE(cache.bytes(), most);
    }
    for (; first < 3000; ++first) {
      append(cache, first, 1);
      cache.drop_unseen();
      expect_each_position_in_its_place(cache);
      ASSERT_LE(cache.bytes(), most);
    }
    EXPECT_THROW(append(cache, first, 1), ShapeError);
  }
}

TEST(KeyValueCache, WithoutAWindowHoldsEverything) {
  KeyValueCache cache(2000, 0, 1, 1);
  for (Index first = 0; first < 2000; first += 100) {
    append(cache, first, 100);
    cache.drop_unseen();
    EXPECT_EQ(cache.begin(), 0);
    EXPECT_EQ(cache.end(), first + 100);
  }
  expect_each_position_in_its_place(cache);
  EXPECT_TRUE(cache.serves(1) && cache.serves(2000));
  EXPECT_FALSE(cache.serves(2001));
}

TEST(KeyValueCache, GoesOnBehindABeginningWhoseWindowItStillHolds) {
  KeyValueCache cache(1000, 50, 1, 1);
  append(cache, 0, 900);
  cache.drop_unseen();
  EXPECT_TRUE(cache.serves(0) && cache.serves(900));
  EXPECT_FALSE(cache.serves(500));
  EXPECT_THROW(cache.restart(500, 1000), ShapeError);
  EXPECT_THROW(append(cache, 500, 1), ShapeError);
  Index least = 900;
  while (cache.serves(least - 1)) --least;
  cache.restart(least, 2000);
  append(cache, least, 1500 - least);
  EXPECT_LE(cache.begin(), least + 1 - 50);
  expect_each_position_in_its_place(cache);
  cache.restart(0, 10);
  append(cache, 0, 10);
  expect_each_position_in_its_place(cache);
  EXPECT_EQ(cache.begin(), 0);
  EXPECT_THROW(append(cache, 10, 1), ShapeError);
}

TEST(KeyValueCache, OfTheWindowGivesTheBitsOfACacheThatDropsNothing) {
  constexpr Index kLong = 600;
  for (AttentionCase c : attention_cases()) {
    if (c.spec.reach() == 0) continue;
    Index& limit = c.spec.window > 0 ? c.spec.window : c.spec.chunk;
    for (const Index keys : {limit, Index{70}}) {
      SCOPED_TRACE(c.name + " " + std::to_string(keys));
      limit = keys;
      const AttentionFixture f(c);
      MixerLayer layer = f.layer();
      MixerCache windowed = layer.make_cache(kLong);
      MixerCache whole = KeyValueCache(kLong, 0, c.spec.key_width(), c.spec.value_width());
      const RopeTable rope = make_rope_table(kLong, {.rotary_dim = c.rotary_dim});
      const Matrix input = random_matrix(kLong, kWidth, 9);
      std::vector<std::int32_t> positions(kLong);
      for (Index i = 0; i < kLong; ++i) positions[at(i)] = static_cast<std::int32_t>(i);
      for (Index first = 0, count = 1; first < kLong; first += count) {
        count = first == 0 ? 150 : first == 200 ? 233 : 1;  // a prompt and, later, a second one
        const MixerContext context{1, count, std::span(positions).subspan(at(first), at(count)),
                                   std::span(&rope, 1)};
        Matrix one = Matrix::copy_of(input.view().rows_from(first, count)), other = Matrix::copy_of(one);
        layer.forward_cached(norm_and_rope_kernels(true), context, windowed, one);
        layer.forward_cached(norm_and_rope_kernels(true), context, whole, other);
        ASSERT_EQ(std::memcmp(one.row(0), other.row(0), at(one.view().size()) * sizeof(float)), 0) << first;
      }
      EXPECT_GT(std::get<KeyValueCache>(windowed).begin(), kLong / 2);
      EXPECT_EQ(std::get<KeyValueCache>(whole).begin(), 0);
    }
  }
}

}  // namespace
}  // namespace moeloom
