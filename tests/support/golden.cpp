#include "golden.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace moeloom::testing {
namespace {

namespace fs = std::filesystem;

bool holds_golden_data(const fs::path& folder) {
  return std::ranges::any_of(std::initializer_list<const char*>{"models", "blocks", "optim"},
                             [&](const char* kind) { return fs::is_directory(folder / kind); });
}

std::string class_of(const fs::path& folder) {
  const Document meta = golden_meta(folder);
  return meta.text_or("hf_class", meta.text_or("hf", ""));
}

template <typename Reference>
double error_against(std::span<const float> got, std::span<const Reference> reference, double floor) {
  require(got.size() == reference.size(), "golden_error needs as many values as the reference has, " +
                                              std::to_string(reference.size()) + ", not " +
                                              std::to_string(got.size()));
  double largest_difference = 0.0;
  double largest_reference = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(reference[i]));
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest_difference = std::max(largest_difference, difference);
    largest_reference = std::max(largest_reference, std::abs(static_cast<double>(reference[i])));
  }
  return largest_difference / (largest_reference + floor);
}

}  // namespace

fs::path source_root() {
  return MOELOOM_SOURCE_DIR;
}

fs::path golden_root() {
  if (const char* named = std::getenv("MOELOOM_GOLDEN"); named != nullptr && *named != '\0') {
    if (holds_golden_data(named)) return named;
    throw IoError(std::string("MOELOOM_GOLDEN=") + named +
                  ": expected a folder with models, blocks or optim");
  }
  const fs::path beside = source_root() / ".." / "shared" / "golden";
  if (holds_golden_data(beside)) return beside.lexically_normal();
  const fs::path bundled = source_root() / "tests" / "data" / "golden";
  if (holds_golden_data(bundled)) return bundled;
  throw IoError("expected golden data in " + beside.string() + " or " + bundled.string() +
                ", found none; set MOELOOM_GOLDEN");
}

std::vector<fs::path> golden_cases(const std::string& kind, const CasePredicate& wanted) {
  const fs::path folder = golden_root() / kind;
  if (!fs::is_directory(folder)) throw IoError(folder.string() + ": expected a folder of golden cases");
  std::vector<fs::path> cases;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "meta.json") && (!wanted || wanted(entry.path())))
      cases.push_back(entry.path());
  if (cases.empty())
    throw IoError(folder.string() + ": expected golden cases of the kind asked for, found none");
  std::ranges::sort(cases);
  return cases;
}

CasePredicate of_class(std::initializer_list<std::string> classes) {
  return [wanted = std::vector<std::string>(classes)](const fs::path& folder) {
    return std::ranges::find(wanted, class_of(folder)) != wanted.end();
  };
}

Document golden_meta(const fs::path& folder) {
  return Document::read(folder / "meta.json");
}

double golden_error(std::span<const float> got, std::span<const double> reference, double floor) {
  return error_against(got, reference, floor);
}

double golden_error(std::span<const float> got, std::span<const float> reference, double floor) {
  return error_against(got, reference, floor);
}

std::vector<double> doubles_in(const SafetensorsFile& file, const std::string& tensor) {
  const TensorInfo& info = file.info(tensor);
  if (info.dtype != DType::kF64) {
    const std::vector<float> floats = file.floats(tensor);
    return {floats.begin(), floats.end()};
  }
  std::vector<double> doubles(at(info.elements()));
  std::memcpy(doubles.data(), file.raw(tensor).data(), doubles.size() * sizeof(double));
  return doubles;
}

GoldenBlock::GoldenBlock(const fs::path& folder)
    : name(folder.filename().string()),
      meta(golden_meta(folder)),
      config(meta.object("config")),
      tensors(folder / "block.safetensors") {}

std::vector<std::string> GoldenBlock::names_after(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [tensor, info] : tensors.tensors())
    if (tensor.starts_with(prefix)) names.push_back(tensor.substr(prefix.size()));
  return names;
}

}  // namespace moeloom::testing
