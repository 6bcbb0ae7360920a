#include "moeloom/app/rate_cache.hpp"

#include "moeloom/app/options.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <cctype>
#include <cmath>
#include <fstream>
#include <optional>
#include <vector>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr Index kFormat = 2;
constexpr std::size_t kMostEntries = 512;  // the oldest make room

std::string key_of(const std::string& machine, const GmmCase& c) {
  return machine + " | D=" + std::to_string(c.hidden) + " F=" + std::to_string(c.inter) +
         " experts=" + std::to_string(c.experts) + " rows=" + std::to_string(c.rows_per_expert) +
         " sources=" + std::to_string(c.sources);
}

Document document_of(const GmmRates& rates) {
  Document document;
  document.set("loop_seconds", rates.loop_seconds);
  document.set("gmm_seconds", rates.gmm_seconds);
  document.set("packed_seconds", rates.packed_seconds);
  document.set("pack_seconds", rates.pack_seconds);
  document.set("loop_add_seconds", rates.loop_add_seconds);
  document.set("gmm_add_seconds", rates.gmm_add_seconds);
  return document;
}

/// Throws IoError for rates that no measurement gives.
GmmRates rates_from(const Document& document) {
  const GmmRates rates{.loop_seconds = document.number("loop_seconds"),
                       .gmm_seconds = document.number("gmm_seconds"),
                       .packed_seconds = document.number("packed_seconds"),
                       .pack_seconds = document.number("pack_seconds"),
                       .loop_add_seconds = document.number("loop_add_seconds"),
                       .gmm_add_seconds = document.number("gmm_add_seconds")};
  for (const double seconds :
       {rates.loop_seconds, rates.gmm_seconds, rates.packed_seconds, rates.pack_seconds})
    if (!(seconds > 0) || !std::isfinite(seconds))
      throw IoError("expected positive seconds, found " + std::to_string(seconds));
  return rates;
}

/// The rates that the file holds; none if there is no such file. Throws IoError.
Document entries_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const Document document = Document::read(file);
  if (const Index format = document.integer("format"); format != kFormat)
    throw IoError(file.string() + " has format " + std::to_string(format) + ", not " +
                  std::to_string(kFormat));
  return document.object("rates");
}

/// All but the oldest of `old`, then the new one.
Document with_entry(const Document& old, const std::string& key, const GmmRates& rates) {
  std::vector<std::string> kept = old.keys();
  std::erase(kept, key);
  const std::size_t surplus = kept.size() < kMostEntries ? 0 : kept.size() - kMostEntries + 1;
  Document entries;
  for (std::size_t i = surplus; i < kept.size(); ++i) entries.set(kept[i], old.object(kept[i]));
  entries.set(key, document_of(rates));
  return entries;
}

/// Entries of other cases, for a file that is about to be replaced; a damaged one has none worth keeping.
Document entries_to_keep(const fs::path& file) {
  try {
    const Document entries = entries_of(file);
    for (const std::string& key : entries.keys()) rates_from(entries.object(key));
    return entries;
  } catch (const IoError&) {
    return {};
  }
}

/// Read again just before: a job beside this one may have added to it. Written aside and renamed, so that of
/// two writers one is whole and the other measures again some day.
void store(const fs::path& file, const std::string& key, const GmmRates& rates) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) throw IoError("cannot make " + file.parent_path().string() + ": " + error.message());
  Document document;
  document.set("format", kFormat);
  document.set("rates", with_entry(entries_to_keep(file), key, rates));
  document.write(file);
}

std::optional<GmmRates> found(const fs::path& file, const std::string& key, std::string& warning) {
  try {
    const Document entries = entries_of(file);
    if (entries.has(key)) return rates_from(entries.object(key));
  } catch (const IoError& error) {
    warning =
        file.string() + " cannot be used (" + error.what() + "); rates are measured again and it is replaced";
  }
  return std::nullopt;
}

}  // namespace

fs::path rate_cache_file(const fs::path& cache_folder) {
  return cache_folder.empty() ? fs::path() : cache_folder / "moeloom" / "gmm-rates.json";
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown CPU";
}

std::string rate_machine(DType element) {
  std::string version = moeloom_version();
  while (!version.empty() && std::isspace(static_cast<unsigned char>(version.back()))) version.pop_back();
  return cpu_model() + " | threads=" + std::to_string(threads()) + " | " +
         version.substr(0, version.find('\n')) + " | " + blas_library() +
         (element == DType::kBF16 ? " | bf16" : "");
}

RateAnswer cached_rates(const fs::path& file, const std::string& machine, const GmmCase& measured,
                        bool refresh, const std::function<GmmRates(const GmmCase&)>& measure) {
  RateAnswer answer;
  const std::string key = key_of(machine, measured);
  if (!file.empty() && !refresh)
    if (const auto rates = found(file, key, answer.warning)) return {*rates, true, {}};
  answer.rates = measure(measured);
  try {
    if (!file.empty()) store(file, key, answer.rates);
  } catch (const IoError& error) {
    answer.warning = std::string(error.what()) + "; the rates of this machine are not kept";
  }
  return answer;
}

}  // namespace moeloom
