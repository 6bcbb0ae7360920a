#include "golden.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>

namespace moeloom::testing {
namespace {

namespace fs = std::filesystem;

bool holds_golden_data(const fs::path& folder) {
  return std::ranges::any_of(std::initializer_list<const char*>{"models", "blocks", "optim"},
                             [&](const char* kind) { return fs::is_directory(folder / kind); });
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

std::vector<fs::path> golden_roots(const char* named) {
  std::vector<fs::path> roots;
  if (named != nullptr && *named != '\0') {
    std::istringstream list(named);
    for (std::string folder; std::getline(list, folder, ':');) {
      if (!holds_golden_data(folder))
        throw IoError(std::string("MOELOOM_GOLDEN=") + named + ": expected models, blocks or optim in " +
                      (folder.empty() ? "an empty name" : folder));
      roots.emplace_back(folder);
    }
  } else {
    for (const char* name : {"golden", "golden2", "golden3"})
      if (const fs::path beside = source_root() / ".." / "shared" / name; holds_golden_data(beside))
        roots.push_back(beside.lexically_normal());
  }
  roots.push_back(source_root() / "tests" / "data" / "golden");
  return roots;
}

std::vector<fs::path> golden_cases(const std::string& kind, const CasePredicate& wanted,
                                   const std::vector<fs::path>& roots) {
  std::vector<fs::path> cases;
  std::set<fs::path> names;
  for (const fs::path& root : roots) {
    if (!fs::is_directory(root / kind)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(root / kind)) {
      const bool seen = root == roots.back() && names.contains(entry.path().filename());
      if (seen || !fs::exists(entry.path() / "meta.json") || (wanted && !wanted(entry.path()))) continue;
      cases.push_back(entry.path());
    }
    for (const fs::path& path : cases) names.insert(path.filename());
  }
  if (cases.empty())
    throw IoError(kind + ": expected golden cases of the kind asked for, found none in " +
                  std::to_string(roots.size()) + " folders, the last " + roots.back().string());
  std::ranges::stable_sort(cases, {}, [](const fs::path& path) { return path.filename(); });
  return cases;
}

std::vector<fs::path> golden_cases(const std::string& kind, const CasePredicate& wanted) {
  return golden_cases(kind, wanted, golden_roots(std::getenv("MOELOOM_GOLDEN")));
}

std::string golden_class(const fs::path& folder) {
  const Document meta = golden_meta(folder);
  const std::string named = meta.text_or("hf_class", meta.text_or("hf", ""));
  return named.substr(0, named.find(" ("));
}

const std::vector<GoldenReader>& golden_readers() {
  static const std::vector<GoldenReader> readers = {
      {"RmsNorm", {"*RMSNorm", "*RMSNorm(*)", "*L2Norm"}},
      {"GatedRmsNorm", {"*RMSNormGated"}},
      {"LayerNorm", {"*LayerNorm"}},
      {"Rope", {"*RotaryEmbedding + apply_rotary*"}},
      {"GoldenMlp",
       {"Qwen3MLP", "LlamaMLP", "DeepseekV3MLP", "Glm4MLP", "Phi3MLP", "Gemma3MLP", "Gemma3nTextMLP"}},
      {"GoldenDeltaRule", {"torch_chunk_gated_delta_rule"}},
      {"GoldenMixers.ShortConv", {"*ShortConv"}},
      {"GoldenMixers.DeltaNet", {"*GatedDeltaNet"}},
      {"GoldenAttention", {"*Attention"}},
      {"GoldenLayers", {"*Attention", "*GatedDeltaNet"}, true},
      {"HeadLoss", {"ForCausalLMLoss"}},
      {"RouterLosses", {"load_balancing_loss_func"}},
      {"GoldenBlock",
       {"*MoeBlock", "*SparseMoEBlock", "Deepseek*MoE", "Glm4Moe*MoE", "Dots1MoE", "GraniteMoe*MoE",
        "SolarOpenMoE", "HYV3MoE", "MiMoV2FlashMoE", "*TextMoe", "HunYuanMoEV1Moe", "GptOssMLP"}},
      {"GoldenFeedForward", {"AXK1MoE", "Gemma4TextDecoderLayer"}},
  };
  return readers;
}

CasePredicate read_by(const std::string& test) {
  const auto reader = std::ranges::find(golden_readers(), test, &GoldenReader::test);
  if (reader == golden_readers().end()) throw IoError(test + " is not in the list of golden readers");
  return [reader](const fs::path& folder) {
    const std::string named = golden_class(folder);
    const bool is_layer = golden_meta(folder).text_or("part", "") == "mixer";
    if (is_layer != reader->of_whole_models) return false;
    return std::ranges::any_of(reader->classes, [&](const std::string& c) { return matches_glob(c, named); });
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
