#include "moeloom/kernels/elementwise/rope.hpp"

#include "moeloom/base/errors.hpp"

#include "elementwise/elementwise_testing.hpp"
#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Named {
  const char* name;
  RopeKernel kernel;
};
const Named kKernels[] = {{"reference", reference_rope()}, {"fused", fused_rope()}};

constexpr double kTheta = 1e4;
constexpr Index kPositions = 50;

struct Size {
  Index rows, heads, head_dim, rotary_dim;
  Index first_dim = 0;
};
const Size kSizes[] = {{0, 2, 16, 16},   {1, 1, 2, 2},   {1, 1, 16, 16},    {5, 3, 20, 20},
                       {4, 2, 36, 36},   {4, 2, 20, 6},  {3, 2, 36, 34},    {3, 2, 8, 0},
                       {300, 4, 64, 64}, {3, 0, 16, 16}, {4, 3, 24, 8, 16}, {4, 2, 15, 6, 4}};
const RopePairs kPairs[] = {RopePairs::kHalfSplit, RopePairs::kInterleaved, RopePairs::kInterleavedToHalves};

/// Settings whose attention factor is not 1, so that transpose and inverse differ.
RopeSettings settings_for(Size size, RopePairs pairs) {
  return {.rotary_dim = size.rotary_dim,
          .theta = kTheta,
          .pairs = pairs,
          .scaling = YarnScaling{.factor = 4, .original_max_position_embeddings = 20},
          .first_dim = size.first_dim};
}

std::vector<std::int32_t> positions_for(Index rows) {
  std::vector<std::int32_t> ids;
  for (Index t = 0; t < rows; ++t) ids.push_back(static_cast<std::int32_t>((t * 7 + 3) % kPositions));
  return ids;
}

/// The formula, element by element in double.
std::vector<double> turned(const std::vector<double>& x, Size size, const std::vector<std::int32_t>& ids,
                           RopePairs pairs) {
  const RopeSettings settings = settings_for(size, pairs);
  const auto frequencies = rope_frequencies(kPositions, settings);
  const double factor = rope_attention_factor(kPositions, settings);
  const Index half = size.rotary_dim / 2;
  const bool split_before = pairs == RopePairs::kHalfSplit, split_after = pairs != RopePairs::kInterleaved;
  std::vector<double> y = x;
  for (Index t = 0; t < size.rows; ++t)
    for (Index h = 0; h < size.heads; ++h)
      for (Index i = 0; i < half; ++i) {
        const double angle = ids[static_cast<std::size_t>(t)] * frequencies[static_cast<std::size_t>(i)];
        const Index begin = (t * size.heads + h) * size.head_dim + size.first_dim;
        const double a = x[static_cast<std::size_t>(begin + (split_before ? i : 2 * i))];
        const double b = x[static_cast<std::size_t>(begin + (split_before ? i + half : 2 * i + 1))];
        y[static_cast<std::size_t>(begin + (split_after ? i : 2 * i))] =
            factor * (a * std::cos(angle) - b * std::sin(angle));
        y[static_cast<std::size_t>(begin + (split_after ? i + half : 2 * i + 1))] =
            factor * (b * std::cos(angle) + a * std::sin(angle));
      }
  return y;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// cos and sin rounded once, two products and a sum: 3e-7 is some three units in the last place.
TEST(Rope, TurnsPairsWhereverTheyStandAtAnySizeAndStride) {
  for (const auto& [name, kernel] : kKernels)
    for (const RopePairs pairs : kPairs)
      for (const Size size : kSizes) {
        const RopeTable table = make_rope_table(kPositions, settings_for(size, pairs));
        const auto ids = positions_for(size.rows);
        GappedMatrix x(size.rows, size.heads * size.head_dim, 1);
        const auto expected = turned(doubles_of(x), size, ids, pairs);
        kernel.forward(x, size.head_dim, ids, table);
        EXPECT_LE(worst_error(doubles_of(x), expected), 3e-7) << name << ' ' << size.head_dim;
        EXPECT_TRUE(x.gap_is_untouched()) << name;
      }
}

// <turned(x), u> = <x, turned back(u)> for every x and u is what a transpose is.
TEST(Rope, BackwardIsTheTransposeOfForward) {
  for (const auto& [name, kernel] : kKernels)
    for (const RopePairs pairs : kPairs)
      for (const Size size : kSizes) {
        const RopeTable table = make_rope_table(kPositions, settings_for(size, pairs));
        const auto ids = positions_for(size.rows);
        const Index cols = size.heads * size.head_dim;
        const Matrix x = random_matrix(size.rows, cols, 4);
        GappedMatrix u(size.rows, cols, 5);
        auto values = doubles_of(x);
        const auto upstream = doubles_of(u);
        kernel.backward(u, size.head_dim, ids, table);
        EXPECT_TRUE(u.gap_is_untouched()) << name;
        if (size.rows > 10) {
          const double there = dot(turned(values, size, ids, pairs), upstream);
          EXPECT_NEAR(dot(values, doubles_of(u)), there, 1e-4) << name;
          continue;
        }
        const auto slopes =
            central_differences(values, [&] { return dot(turned(values, size, ids, pairs), upstream); });
        EXPECT_LE(worst_error(doubles_of(u), slopes), 1e-6) << name << ' ' << size.head_dim;
      }
}

TEST(Rope, LeavesWhatIsNotTurnedBitForBit) {
  const Size size = {6, 3, 20, 6, 4};
  for (const RopePairs pairs : kPairs) {
    const RopeTable table = make_rope_table(kPositions, settings_for(size, pairs));
    for (const auto& [name, kernel] : kKernels) {
      const Matrix before = random_matrix(size.rows, 60, 3);
      Matrix x = Matrix::copy_of(before);
      kernel.forward(x, size.head_dim, positions_for(size.rows), table);
      const auto part = [](const Matrix& m, Index begin, Index count) {
        return bits_of(m.view().cols_from(begin, count));
      };
      for (Index head = 0; head < 60; head += 20) {
        EXPECT_EQ(part(x, head, 4), part(before, head, 4)) << name;
        EXPECT_EQ(part(x, head + 10, 10), part(before, head + 10, 10)) << name;
        EXPECT_NE(part(x, head + 4, 6), part(before, head + 4, 6)) << name;
      }
    }
  }
}

TEST(Rope, GivesTheSameBitsOnAnyThreads) {
  for (const RopePairs pairs : kPairs) {
    const RopeTable table = make_rope_table(kPositions, settings_for({700, 4, 64, 64}, pairs));
    const auto run = [&] {
      Matrix x = random_matrix(700, 256, 6);
      fused_rope().forward(x, 64, positions_for(700), table);
      return x;
    };
    EXPECT_EQ(bits_of(on_threads(1, run)), bits_of(on_threads(3, run)));
  }
}

TEST(Rope, RefusesWhatDoesNotFit) {
  const RopeTable table = make_rope_table(4, {.rotary_dim = 8});
  const RopeTable late = make_rope_table(4, {.rotary_dim = 8, .first_dim = 1});
  Matrix x(2, 16);
  const auto ids = [](std::int32_t a, std::int32_t b) { return std::vector<std::int32_t>{a, b}; };
  for (const auto& [name, kernel] : kKernels) {
    EXPECT_NO_THROW(kernel.forward(x, 8, ids(0, 3), table)) << name;
    EXPECT_THROW(kernel.forward(x, 8, ids(0, 4), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 8, ids(-1, 0), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 4, ids(0, 1), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 12, ids(0, 1), table), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, 8, ids(0, 1), late), ShapeError) << name;
    EXPECT_THROW(kernel.backward(x, 8, std::vector<std::int32_t>{0}, table), ShapeError) << name;
  }
}

/// [B, heads, S, d] as stored -> [B*S, heads*d] as a layer holds it, which is also how Llama4 stores it.
Matrix tokens_of(const GoldenBlock& block, const std::string& name) {
  const auto shape = block.shape(name);
  const auto values = block.tensors.floats(name);
  if (block.meta.text("hf").starts_with("Llama4"))
    return Matrix::copy_of({values.data(), shape[0] * shape[1], shape[2] * shape[3]});
  Matrix m(shape[0] * shape[2], shape[1] * shape[3]);
  std::size_t next = 0;
  for (Index b = 0; b < shape[0]; ++b)
    for (Index h = 0; h < shape[1]; ++h)
      for (Index s = 0; s < shape[2]; ++s)
        for (Index i = 0; i < shape[3]; ++i) m.row(b * shape[2] + s)[h * shape[3] + i] = values[next++];
  return m;
}

RopePairs pairs_of(const std::string& reference) {
  if (reference.starts_with("DeepseekV3")) return RopePairs::kInterleavedToHalves;
  for (const char* in_place : {"Glm4Rotary", "DeepseekV2", "Ernie4_5", "Llama4", "Cohere2"})
    if (reference.starts_with(in_place)) return RopePairs::kInterleaved;
  return RopePairs::kHalfSplit;
}

LongRopeScaling longrope_of(const Document& scaling) {
  return {.short_factor = scaling.numbers("short_factor"),
          .long_factor = scaling.numbers("long_factor"),
          .short_mscale = scaling.number("short_mscale"),
          .long_mscale = scaling.number("long_mscale"),
          .original_max_position_embeddings = scaling.integer("original_max_position_embeddings")};
}

Llama3Scaling llama3_of(const Document& scaling) {
  return {.factor = scaling.number("factor"),
          .low_freq_factor = scaling.number("low_freq_factor"),
          .high_freq_factor = scaling.number("high_freq_factor"),
          .original_max_position_embeddings = scaling.number("original_max_position_embeddings")};
}

YarnScaling yarn_of(const Document& scaling) {
  return {.factor = scaling.number("factor"),
          .beta_fast = scaling.number("beta_fast"),
          .beta_slow = scaling.number("beta_slow"),
          .mscale = scaling.number_or("mscale", 0),
          .mscale_all_dim = scaling.number_or("mscale_all_dim", 0),
          .truncate = scaling.boolean_or("truncate", true),
          .original_max_position_embeddings = scaling.number("original_max_position_embeddings")};
}

RopeScaling scaling_of(const Document& scaling) {
  const std::string type = scaling.text("rope_type");
  if (type == "longrope") return longrope_of(scaling);
  if (type == "llama3") return llama3_of(scaling);
  if (type == "yarn") return yarn_of(scaling);
  if (type == "dynamic") return NtkAlphaScaling{scaling.number("alpha")};
  return {};
}

/// Of a class of transformers 5: rope_parameters, perhaps one object a type of layer, of heads of `width`.
RopeSettings settings_of_parameters(const GoldenBlock& block) {
  const Document& config = block.config;
  const Document all = config.object("rope_parameters");
  const Document rope = config.has("layer_type") ? all.object(config.text("layer_type")) : all;
  const double width = config.number("width");
  const double share = rope.number_or("partial_rotary_factor", 1);
  RopeSettings settings{.rotary_dim = static_cast<Index>(width * share),
                        .theta = rope.number("rope_theta"),
                        .pairs = pairs_of(block.meta.text("hf"))};
  if (rope.text("rope_type") == "proportional") {  // across the whole head
    settings.rotary_dim = config.integer("width");
    settings.scaling =
        ProportionalScaling{static_cast<Index>(share * width / 2), rope.number_or("factor", 1)};
  } else {
    settings.scaling = scaling_of(rope);
  }
  return settings;
}

/// How a reference class pairs elements, and what its config calls the size of the turned part.
RopeSettings golden_settings(const GoldenBlock& block) {
  const Document& config = block.config;
  if (config.has("rope_parameters")) return settings_of_parameters(block);
  RopeSettings settings{.theta = config.number("rope_theta"), .pairs = pairs_of(block.meta.text("hf"))};
  const std::string size = config.has("qk_rope_head_dim") ? "qk_rope_head_dim" : "head_dim";
  settings.rotary_dim = static_cast<Index>(static_cast<double>(config.integer(size)) *
                                           config.number_or("partial_rotary_factor", 1));
  if (config.has("rope_scaling")) settings.scaling = scaling_of(config.object("rope_scaling"));
  return settings;
}

TEST(Rope, GivesTheGoldenQueriesKeysAndGradients) {
  for_each_golden_block("Rope", [](const GoldenBlock& block) {
    for (const auto& [name, kernel] : kKernels) {
      const auto ids64 = block.tensors.integers("input.position_ids");
      const std::vector<std::int32_t> ids(ids64.begin(), ids64.end());
      const RopeTable table =
          make_rope_table(*std::max_element(ids.begin(), ids.end()) + 1, golden_settings(block));
      const Index head_dim = block.shape("input.q").back();
      for (const std::string which : {"q", "k"}) {
        Matrix x = tokens_of(block, "input." + which),
               dx = tokens_of(block, "upstream_grad." + which + "_out");
        kernel.forward(x, head_dim, ids, table);
        kernel.backward(dx, head_dim, ids, table);
        const Matrix y = tokens_of(block, which + "_out"), grad = tokens_of(block, "grad.input." + which);
        EXPECT_LE(golden_error(x.view().flat(), y.view().flat(), kBlockFloor), 1e-5)
            << block.name << ' ' << name << which;
        EXPECT_LE(golden_error(dx.view().flat(), grad.view().flat(), kBlockFloor), 2e-5)
            << block.name << ' ' << name << which;
      }
    }
  });
}

}  // namespace
}  // namespace moeloom
