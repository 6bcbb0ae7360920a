#include "train/moments.hpp"

#include "moeloom/base/errors.hpp"
#include "train/adamw.hpp"
#include "train/moment_codes.hpp"
#include "train/training_run.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr std::array kPacked = {MomentFormat::kBf16, MomentFormat::kInt8};
constexpr std::array kBoth = {Moment::kFirst, Moment::kSecond};

/// As moments are: of many sizes, a second one never below 0.
std::vector<float> numbers_like(Moment moment, Index count, std::uint64_t seed) {
  const Matrix normal = testing::random_matrix(2, count, seed);
  std::vector<float> numbers;
  for (Index i = 0; i < count; ++i) {
    const float x = normal.row(0)[i] * std::exp(2 * normal.row(1)[i]);
    numbers.push_back(moment == Moment::kFirst ? x : x * x);
  }
  return numbers;
}

std::vector<float> read(MomentView view) {
  std::vector<float> memory;
  const std::span<const float> numbers = view.read(memory);
  return {numbers.begin(), numbers.end()};
}

float largest(std::span<const float> numbers) {
  float found = 0;
  for (const float number : numbers) found = std::max(found, std::abs(number));
  return found;
}

/// From a number to those next to it that the format has, at most.
double gap_at(MomentFormat format, Moment moment, double number, double scale) {
  if (format == MomentFormat::kBf16) return std::abs(number) / 128 + 1e-38;
  if (scale == 0) return 0;
  const bool first = moment == Moment::kFirst;
  const double levels = first ? 127 : 255, power = first ? 2 : 4;
  const double root = std::pow(std::abs(number) / scale, 1 / power);
  return scale * (std::pow(root + 1 / levels, power) - std::pow(std::max(root - 1 / levels, 0.0), power));
}

TEST(Moments, AreZerosAtFirst) {
  for (const MomentFormat format : kMomentFormats) {
    Moments moments(format, 1024, 1024);
    for (const Moment moment : kBoth)
      EXPECT_EQ(read(moments.view(moment, 0, 1000)), std::vector<float>(1000)) << name_of(format);
  }
}

TEST(Moments, TakeTheBytesOfTheirFormat) {
  EXPECT_EQ(words_of(MomentFormat::kFp32, 1000), 1000);
  EXPECT_EQ(words_of(MomentFormat::kBf16, 1000), 500);
  EXPECT_EQ(words_of(MomentFormat::kBf16, 1001), 501);
  EXPECT_EQ(words_of(MomentFormat::kInt8, 1024), 4 * 65);
  EXPECT_EQ(words_of(MomentFormat::kInt8, 1), 65);
}

TEST(Moments, RoundToANeighbourAndWhatWasReadComesBack) {
  for (const MomentFormat format : kPacked)
    for (const Moment moment : kBoth)
      for (const Index count : {Index{1}, Index{255}, Index{256}, Index{1003}}) {
        SCOPED_TRACE(std::string(name_of(format)) + ", " + std::to_string(count));
        Moments moments(format, 2048, 2048);
        const MomentView view = moments.view(moment, 512, count);
        std::vector<float> numbers = numbers_like(moment, count, 11);
        numbers[0] = 0;
        view.write(numbers);
        const std::vector<float> rounded = read(view);
        for (Index begin = 0; begin < count; begin += 256) {
          const Index end = std::min(begin + 256, count);
          const double scale = largest(std::span(numbers).subspan(at(begin), at(end - begin)));
          for (Index i = begin; i < end; ++i)
            EXPECT_LE(std::abs(static_cast<double>(rounded[at(i)]) - numbers[at(i)]),
                      gap_at(format, moment, numbers[at(i)], scale))
                << i << " of " << numbers[at(i)];
        }
        view.write(rounded);
        EXPECT_EQ(read(view), rounded);
        EXPECT_EQ(read(moments.view(moment, 0, 512)), std::vector<float>(512)) << "the others stay";
      }
}

TEST(Moments, RoundAtRandomSoThatTheMeanStays) {
  constexpr int kDraws = 4000;
  for (const MomentFormat format : kPacked)
    for (const Moment moment : kBoth) {
      SCOPED_TRACE(name_of(format));
      Moments moments(format, 256, 256);
      const MomentView view = moments.view(moment, 0, 16);
      const std::vector<float> numbers = numbers_like(moment, 16, 5);
      std::vector<double> means(16);
      for (int draw = 0; draw < kDraws; ++draw) {
        std::array<std::uint16_t, 16> random;
        for (std::size_t i = 0; i < 16; ++i)  // every sixteenth of the range as often, shifted by element
          random[i] =
              static_cast<std::uint16_t>((static_cast<std::size_t>(draw) * 40503u + i * 4099u) % 65536u);
        view.encode(numbers, random);
        const std::vector<float> rounded = read(view);
        for (std::size_t i = 0; i < 16; ++i) means[i] += static_cast<double>(rounded[i]) / kDraws;
      }
      const double scale = largest(numbers);
      for (std::size_t i = 0; i < 16; ++i) {
        // What is below the least size of a second moment is that: it never becomes 0.
        const double least =
            format == MomentFormat::kInt8 && moment == Moment::kSecond ? scale / std::pow(255.0, 4) : 0.0;
        EXPECT_NEAR(means[i], numbers[i], 0.02 * gap_at(format, moment, numbers[i], scale) + least) << i;
      }
    }
}

template <typename Codes>
void expect_full_codes() {
  const Matrix numbers = testing::random_matrix(1, 100000, 3);
  for (const float number : numbers.view().flat()) {
    const float given = std::exp(8 * number);
    float words[2];
    const float factor = Int8Block<Codes>(words).begin(std::span(&given, 1));
    for (const float fraction : {0.0f, 0.5f, fraction_of(~0u)})
      ASSERT_EQ(Codes::at_random(given, factor, fraction), static_cast<int>(Codes::kLevels)) << given;
  }
}

TEST(Moments, TheLargestOfABlockHasTheLastCodeSoThatItsScaleComesBack) {
  expect_full_codes<FirstCodes>();
  expect_full_codes<SecondCodes>();
}

/// Of 16 bits uniform in [0, 2^16) and independent: mean 1/2 and variance 1/12 as shares, no correlation.
TEST(RandomBits, GiveThreeIndependentSixteens) {
  constexpr Index kStretches = 16, kPlaces = 1 << 16;
  std::array<double, 3> sums{}, squares{}, products{};
  for (Index stretch = 0; stretch < kStretches; ++stretch) {
    const RandomBits random(at(stretch));
    for (Index place = 0; place < kPlaces; ++place) {
      const std::uint32_t bits = random.of(place);
      const std::array<std::uint32_t, 3> sixteens = {bits & 0xffffu, bits >> 16,
                                                     RandomBits::another_16(bits)};
      std::array<double, 3> shares{};
      for (std::size_t i = 0; i < 3; ++i) shares[i] = (sixteens[i] + 0.5) / 65536 - 0.5;
      for (std::size_t i = 0; i < 3; ++i) {
        sums[i] += shares[i];
        squares[i] += shares[i] * shares[i];
        products[i] += shares[i] * shares[(i + 1) % 3];
      }
    }
  }
  // Five standard deviations of a mean of n numbers: of a share, of its square, and of a product.
  const auto n = static_cast<double>(kStretches * kPlaces);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(sums[i] / n, 0, 5 * std::sqrt(1 / 12.0 / n)) << i;
    EXPECT_NEAR(squares[i] / n, 1 / 12.0, 5 * std::sqrt(1 / 180.0 / n)) << i;
    EXPECT_NEAR(products[i] / n, 0, 5 * std::sqrt(1 / 144.0 / n)) << i;
  }
}

TEST(Moments, ASecondOneAboveZeroStaysAboveZero) {
  Moments moments(MomentFormat::kInt8, 256, 256);
  const MomentView view = moments.view(Moment::kSecond, 0, 3);
  view.write(std::vector<float>{1.0f, 1e-20f, 0.0f});
  EXPECT_GT(read(view)[1], 0);
  EXPECT_EQ(read(view)[2], 0);
  view.encode(std::vector<float>{1.0f, 1e-20f, 0.0f}, std::vector<std::uint16_t>(3, 65535));
  EXPECT_GT(read(view)[1], 0);
}

TEST(Moments, BeginAtWholeUnits) {
  Moments moments(MomentFormat::kInt8, 512, 512);
  EXPECT_THROW(moments.view(Moment::kFirst, 100, 10), ShapeError);
}

/// Moments as they are kept, and the formula in double from there: each step is compared by itself.
TEST(Moments, AnUpdateIsAdamWsFormulaFromWhatIsKept) {
  constexpr Index kCount = 700;
  const AdamW settings;
  for (const MomentFormat format : kPacked) {
    SCOPED_TRACE(name_of(format));
    Moments moments(format, 1024, 1024);
    const MomentView m = moments.view(Moment::kFirst, 0, kCount),
                     v = moments.view(Moment::kSecond, 0, kCount);
    const Matrix start = testing::random_matrix(1, kCount, 3);
    Matrix weights = Matrix::copy_of(start);
    const std::span<float> w = weights.view().flat();
    for (Index time = 1; time <= 6; ++time) {
      const Matrix grad = testing::random_matrix(1, kCount, 40 + static_cast<std::uint64_t>(time));
      const AdamWUpdate update{.learning_rate = 0.01,
                               .grad_scale = 0.5,
                               .weight_decay = 0.1,
                               .time = time,
                               .rounding = static_cast<std::uint64_t>(time)};
      const std::vector<float> m_before = read(m), v_before = read(v);
      const std::vector<float> w_before(w.begin(), w.end());
      adamw_update(settings, update, grad.view().flat(), weights.view(), m, v);
      const std::vector<float> m_after = read(m), v_after = read(v);
      std::vector<double> m_exact, v_exact;
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = 0.5 * static_cast<double>(grad.row(0)[i]);
        m_exact.push_back(0.9 * m_before[i] + 0.1 * g);
        v_exact.push_back(0.95 * v_before[i] + 0.05 * g * g);
        const double root = std::sqrt(v_exact[i] / (1 - std::pow(0.95, static_cast<double>(time))));
        const double expected =
            w_before[i] * (1 - 0.01 * 0.1) -
            0.01 / (1 - std::pow(0.9, static_cast<double>(time))) * m_exact[i] / (root + 1e-8);
        EXPECT_NEAR(w[i], expected, 1e-6) << i;
      }
      for (std::size_t block = 0; block < w.size(); block += 256)
        for (std::size_t i = block; i < std::min(block + 256, w.size()); ++i) {
          double m_scale = 0, v_scale = 0;
          for (std::size_t j = block; j < std::min(block + 256, w.size()); ++j) {
            m_scale = std::max(m_scale, std::abs(m_exact[j]));
            v_scale = std::max(v_scale, v_exact[j]);
          }
          EXPECT_NEAR(m_after[i], m_exact[i], 1.001 * gap_at(format, Moment::kFirst, m_exact[i], m_scale));
          EXPECT_NEAR(v_after[i], v_exact[i], 1.001 * gap_at(format, Moment::kSecond, v_exact[i], v_scale));
        }
    }
  }
}

TEST(Moments, InFewerBytesTrainAsWellAndAlikeOnEveryMesh) {
  const Index world = Communicator::world().size();
  constexpr Index kSteps = 14;
  const auto losses = [&](MomentFormat format, MeshShape shape) {
    return testing::TrainingRun(shape, {.exact = 1, .moments = format}).losses(kSteps);
  };
  const std::vector<double> fp32 = losses(MomentFormat::kFp32, testing::shape_of(world, 1));
  const double last = fp32[fp32.size() - 2];
  EXPECT_LT(last, 0.9 * fp32[0]) << "it learns";
  for (const MomentFormat format : kPacked) {
    SCOPED_TRACE(name_of(format));
    const std::vector<double> found = losses(format, testing::shape_of(world, 1));
    EXPECT_NEAR(found[found.size() - 2], last, 0.01 * last);
    EXPECT_NE(found, fp32);
    for (const MeshShape& shape : testing::meshes_of(world))
      EXPECT_EQ(losses(format, shape), found) << shape.text();
  }
}

}  // namespace
}  // namespace moeloom
