// Golden data: cases found by listing a folder, so that another folder of the same structure needs no code.
#pragma once

#include "moeloom/base/glob.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/safetensors.hpp"

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace moeloom::testing {

/// F in golden_error, by kind of case.
inline constexpr double kBlockFloor = 0.1;
inline constexpr double kModelFloor = 0.01;

/// The source tree that this was built from.
std::filesystem::path source_root();

/// The folders that `named`, the value of MOELOOM_GOLDEN, lists with ':' between them; if it is unset or
/// empty, ../shared/golden beside the source tree, if that is there. The source's own tests/data/golden comes
/// last. Throws IoError for a name without golden data.
std::vector<std::filesystem::path> golden_roots(const char* named);

using CasePredicate = std::function<bool(const std::filesystem::path&)>;

/// Cases of a kind ("models", "blocks", "optim") in all roots that satisfy the predicate (all, if it is
/// empty), by name; of the last root, those whose names no other root has. Throws IoError if no case does: a
/// golden test may not pass because nothing was found.
std::vector<std::filesystem::path> golden_cases(const std::string& kind, const CasePredicate& wanted,
                                                const std::vector<std::filesystem::path>& roots);
/// The same in the roots that the environment's MOELOOM_GOLDEN gives.
std::vector<std::filesystem::path> golden_cases(const std::string& kind, const CasePredicate& wanted = {});

/// The reference class that a case's meta.json names ("Qwen3RMSNorm"), without what stands in brackets behind
/// it.
std::string golden_class(const std::filesystem::path& folder);

/// A test and the reference classes, as patterns, whose blocks it reads.
struct GoldenReader {
  std::string test;
  NamePatterns classes;
  bool of_whole_models = false;  // mixers whose meta.json has the config and the layer that they are of
};
/// All of them: what none of them reads is a failure (golden_census_test.cpp).
const std::vector<GoldenReader>& golden_readers();
/// The blocks of one. Throws IoError for a test that is not among them.
CasePredicate read_by(const std::string& test);

/// A case's meta.json, also that of models and optim.
Document golden_meta(const std::filesystem::path& folder);

/// max |got - reference| / (max |reference| + floor). A NaN anywhere gives infinity. Throws ShapeError for
/// different sizes.
double golden_error(std::span<const float> got, std::span<const double> reference, double floor);
double golden_error(std::span<const float> got, std::span<const float> reference, double floor);

/// A tensor of F64 or F32. Throws IoError for another type.
std::vector<double> doubles_in(const SafetensorsFile& file, const std::string& tensor);

/// One blocks/CASE: weights, inputs, outputs, gradients.
struct GoldenBlock {
  explicit GoldenBlock(const std::filesystem::path& folder);

  std::string name;
  Document meta;
  Document config;  // of the block, from meta.json
  SafetensorsFile tensors;

  std::vector<Index> shape(const std::string& tensor) const { return tensors.info(tensor).shape; }
  /// The tensors whose names begin so ("grad.weight."), without that beginning.
  std::vector<std::string> names_after(const std::string& prefix) const;
};

}  // namespace moeloom::testing
