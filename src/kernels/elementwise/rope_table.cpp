#include "moeloom/kernels/elementwise/rope_table.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <string>

namespace moeloom {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// Of an odd width the last pair reaches one element further.
std::size_t pairs_of(const RopeSettings& settings) {
  return static_cast<std::size_t>(ceil_div(settings.rotary_dim, 2));
}

void require_positive(double value, const char* name) {
  require(value > 0, std::string("rope: ") + name + " must be positive, not " + std::to_string(value));
}

void check_scaling(const std::monostate&, const RopeSettings&) {}

void check_scaling(const LinearScaling& scaling, const RopeSettings&) {
  require_positive(scaling.factor, "factor");
}

void check_scaling(const Llama3Scaling& scaling, const RopeSettings&) {
  require_positive(scaling.factor, "factor");
  require_positive(scaling.low_freq_factor, "low_freq_factor");
  require_positive(scaling.original_max_position_embeddings, "original_max_position_embeddings");
  require(scaling.high_freq_factor >= scaling.low_freq_factor,
          "rope: high_freq_factor must not be below low_freq_factor");
}

void check_scaling(const YarnScaling& scaling, const RopeSettings& settings) {
  require_positive(scaling.factor, "factor");
  require_positive(scaling.beta_fast, "beta_fast");
  require_positive(scaling.beta_slow, "beta_slow");
  require_positive(scaling.original_max_position_embeddings, "original_max_position_embeddings");
  require(settings.theta != 1, "rope: yarn needs a theta other than 1");
}

void check_scaling(const LongRopeScaling& scaling, const RopeSettings& settings) {
  const std::size_t pairs = pairs_of(settings);
  require(scaling.short_factor.size() == pairs && scaling.long_factor.size() == pairs,
          "rope: short_factor and long_factor need rotary_dim / 2 = " + std::to_string(pairs) +
              " numbers each, not " + std::to_string(scaling.short_factor.size()) + " and " +
              std::to_string(scaling.long_factor.size()));
  for (const double factor : scaling.short_factor) require_positive(factor, "each short_factor");
  for (const double factor : scaling.long_factor) require_positive(factor, "each long_factor");
  require(scaling.original_max_position_embeddings > 1,
          "rope: original_max_position_embeddings must be above 1");
  require(scaling.short_mscale.has_value() == scaling.long_mscale.has_value(),
          "rope: short_mscale and long_mscale come together");
  require_positive(scaling.short_mscale.value_or(1), "short_mscale");
  require_positive(scaling.long_mscale.value_or(1), "long_mscale");
}

void check_scaling(const NtkAlphaScaling& scaling, const RopeSettings& settings) {
  require_positive(scaling.alpha, "alpha");
  require(settings.rotary_dim > 2, "rope: alpha needs more than one pair");
}

void check_scaling(const ProportionalScaling& scaling, const RopeSettings& settings) {
  require_positive(scaling.factor, "factor");
  require(scaling.turned >= 0 && 2 * scaling.turned <= settings.rotary_dim,
          "rope: turned pairs must be among the " + std::to_string(settings.rotary_dim / 2));
}

void check(const RopeSettings& settings) {
  require(settings.rotary_dim >= 0,
          "rotary_dim must not be negative, as " + std::to_string(settings.rotary_dim) + " is");
  require(settings.first_dim >= 0, "first_dim must not be negative");
  require_positive(settings.theta, "theta");
  std::visit([&](const auto& scaling) { check_scaling(scaling, settings); }, settings.scaling);
}

using Frequencies = std::vector<double>;

void scale(Frequencies&, const std::monostate&, const RopeSettings&, Index) {}

void scale(Frequencies& frequencies, const LinearScaling& scaling, const RopeSettings&, Index) {
  for (double& frequency : frequencies) frequency /= scaling.factor;
}

/// The share of a frequency that is kept as it is; the rest of it is divided by factor.
double kept_share(double frequency, const Llama3Scaling& scaling) {
  const double turns = scaling.original_max_position_embeddings * frequency / kTurn;
  if (scaling.high_freq_factor == scaling.low_freq_factor) return turns >= scaling.low_freq_factor ? 1 : 0;
  const double share =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return std::clamp(share, 0.0, 1.0);
}

double mixed(double frequency, double kept, double factor) {
  return kept * frequency + (1 - kept) * frequency / factor;
}

void scale(Frequencies& frequencies, const Llama3Scaling& scaling, const RopeSettings&, Index) {
  for (double& frequency : frequencies)
    frequency = mixed(frequency, kept_share(frequency, scaling), scaling.factor);
}

/// The pair, as a real number, that turns so often over the original length.
double pair_with_turns(double turns, const YarnScaling& scaling, const RopeSettings& settings) {
  const double pairs = static_cast<double>(settings.rotary_dim) / 2;
  return pairs * std::log(scaling.original_max_position_embeddings / (turns * kTurn)) /
         std::log(settings.theta);
}

void scale(Frequencies& frequencies, const YarnScaling& scaling, const RopeSettings& settings, Index) {
  double begin = pair_with_turns(scaling.beta_fast, scaling, settings);
  double end = pair_with_turns(scaling.beta_slow, scaling, settings);
  if (scaling.truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  // HF's bound, though there are only half as many pairs.
  end = std::min(end, static_cast<double>(settings.rotary_dim - 1));
  if (begin == end) end += 0.001;  // HF's way around a ramp of no length
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - begin) / (end - begin), 0.0, 1.0);
    frequencies[i] = mixed(frequencies[i], 1 - ramp, scaling.factor);
  }
}

bool is_long(Index sequence_length, const LongRopeScaling& scaling) {
  return sequence_length > scaling.original_max_position_embeddings;
}

void scale(Frequencies& frequencies, const LongRopeScaling& scaling, const RopeSettings&,
           Index sequence_length) {
  const bool longer = is_long(sequence_length, scaling);
  const std::vector<double>& factors = longer ? scaling.long_factor : scaling.short_factor;
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

/// theta' = theta alpha^(r / (r - 2)), and pair i turns with theta'^(-2i / r).
void scale(Frequencies& frequencies, const NtkAlphaScaling& scaling, const RopeSettings& settings, Index) {
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] *=
        std::pow(scaling.alpha, -2.0 * static_cast<double>(i) / static_cast<double>(settings.rotary_dim - 2));
}

void scale(Frequencies& frequencies, const ProportionalScaling& scaling, const RopeSettings&, Index) {
  for (double& frequency : frequencies) frequency /= scaling.factor;
  std::fill(frequencies.begin() + scaling.turned, frequencies.end(), 0.0);
}

double attention_factor_of(const std::monostate&, Index) {
  return 1;
}
double attention_factor_of(const LinearScaling&, Index) {
  return 1;
}
double attention_factor_of(const Llama3Scaling&, Index) {
  return 1;
}
double attention_factor_of(const NtkAlphaScaling&, Index) {
  return 1;
}
double attention_factor_of(const ProportionalScaling&, Index) {
  return 1;
}

double attention_factor_of(const YarnScaling& scaling, Index) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale == 0 || scaling.mscale_all_dim == 0) return yarn_mscale(scaling.factor, 1);
  return yarn_mscale(scaling.factor, scaling.mscale) / yarn_mscale(scaling.factor, scaling.mscale_all_dim);
}

double attention_factor_of(const LongRopeScaling& scaling, Index sequence_length) {
  if (scaling.short_mscale)
    return is_long(sequence_length, scaling) ? *scaling.long_mscale : *scaling.short_mscale;
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.factor <= 1) return 1;
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  return std::sqrt(1 + std::log(scaling.factor) / std::log(original));
}

/// The length up to which longrope takes the short factors; 0 if nothing depends on the length.
Index short_until(const RopeSettings& settings) {
  const auto* longrope = std::get_if<LongRopeScaling>(&settings.scaling);
  return longrope == nullptr ? 0 : longrope->original_max_position_embeddings;
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 1 + 0.1 * mscale * std::log(factor);
}

std::vector<double> rope_frequencies(Index sequence_length, const RopeSettings& settings) {
  check(settings);
  Frequencies frequencies(pairs_of(settings));
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] =
        std::pow(settings.theta, -2.0 * static_cast<double>(i) / static_cast<double>(settings.rotary_dim));
  std::visit([&](const auto& scaling) { scale(frequencies, scaling, settings, sequence_length); },
             settings.scaling);
  return frequencies;
}

bool rope_turns_anew(Index before, Index now, const RopeSettings& settings) {
  const Index limit = short_until(settings);
  return limit > 0 && before <= limit && now > limit;
}

double rope_attention_factor(Index sequence_length, const RopeSettings& settings) {
  return std::visit([&](const auto& scaling) { return attention_factor_of(scaling, sequence_length); },
                    settings.scaling);
}

RopeTable make_rope_table(Index positions, const RopeSettings& settings) {
  require(positions >= 0, "positions must not be negative");
  const Frequencies frequencies = rope_frequencies(positions, settings);
  const double factor = rope_attention_factor(positions, settings);
  const Index pairs = static_cast<Index>(pairs_of(settings)), limit = short_until(settings);
  RopeTable table{.cosine = Matrix(positions, pairs),
                  .sine = Matrix(positions, pairs),
                  .pairs = settings.pairs,
                  .first_dim = settings.first_dim,
                  .shortest_served = limit > 0 && positions > limit ? limit + 1 : 0};
  for (Index position = 0; position < positions; ++position) {
    for (Index i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
      table.cosine.row(position)[i] = static_cast<float>(factor * std::cos(angle));
      table.sine.row(position)[i] = static_cast<float>(factor * std::sin(angle));
    }
  }
  return table;
}

RopeTable make_rope_table_of_lengths(Index positions, const RopeSettings& settings) {
  RopeTable table = make_rope_table(positions, settings);
  const Index limit = short_until(settings);
  if (table.shortest_served == 0) return table;
  const RopeTable shorter = make_rope_table(limit, settings);
  const auto below = [](const Matrix& first, const Matrix& second) {
    Matrix both(first.rows() + second.rows(), first.cols());
    copy(first, both.view().rows_from(0, first.rows()));
    copy(second, both.view().rows_from(first.rows(), second.rows()));
    return both;
  };
  table.cosine = below(shorter.cosine, table.cosine);
  table.sine = below(shorter.sine, table.sine);
  table.shortest_served = 0;
  table.long_begin = limit;
  return table;
}

Index roomy_rope_positions(Index sequence_length, const RopeSettings& settings) {
  const auto roomy = static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(sequence_length)));
  const Index limit = short_until(settings);
  return sequence_length <= limit ? std::min(roomy, limit) : roomy;
}

}  // namespace moeloom
