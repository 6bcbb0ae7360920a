#include "plan/rates/rate_cache.hpp"

#include "io/file_lock.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/version.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "plan/rates/cpu_model.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <optional>
#include <vector>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr Index kFormat = 8;
constexpr std::string_view kGmmSection = "rates";
constexpr std::string_view kMachineSection = "machines";
constexpr std::size_t kMostEntries = 512;  // the oldest make room

std::string key_of(const std::string& machine, const RateCase& c, const MachineRates& rates) {
  std::string key = machine;
  const std::initializer_list<std::pair<const char*, Index>> sizes = {
      {" | D=", c.hidden},   {" heads=", c.heads},     {" kv=", c.kv_heads},
      {" of=", c.head_dim},  {" value=", c.value_dim}, {" S=", c.sequence_length},
      {" E=", c.experts},    {" K=", c.top_k},         {" F=", c.inter},
      {" V=", c.vocabulary}, {" ranks=", rates.ranks}, {" a node=", rates.node_ranks}};
  for (const auto& [name, size] : sizes) key += name + std::to_string(size);
  return key;
}

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

/// The numbers of MachineRates by name, but for the dense ones.
constexpr std::array kMachineNumbers = {
    std::pair("attention_flops", &MachineRates::attention_flops),
    std::pair("head_flops", &MachineRates::head_flops),
    std::pair("router_tokens", &MachineRates::router_tokens),
    std::pair("plan_slots", &MachineRates::plan_slots),
    std::pair("elementwise_bytes", &MachineRates::elementwise_bytes),
    std::pair("copy_bytes", &MachineRates::copy_bytes),
    std::pair("updated_elements", &MachineRates::updated_elements),
    std::pair("expert_slowdown", &MachineRates::expert_slowdown),
    std::pair("node_message_seconds", &MachineRates::node_message_seconds),
    std::pair("node_bytes_per_second", &MachineRates::node_bytes_per_second),
    std::pair("meeting_seconds", &MachineRates::meeting_seconds),
    std::pair("network_message_seconds", &MachineRates::network_message_seconds),
    std::pair("network_bytes_per_second", &MachineRates::network_bytes_per_second),
    std::pair("link_median_bytes_per_second", &MachineRates::link_median_bytes_per_second),
    std::pair("link_slowest_bytes_per_second", &MachineRates::link_slowest_bytes_per_second)};
constexpr std::size_t kAlwaysMeasured = 8;  // of them; the others need several ranks

/// The file's entries of one section; none if there is no such file or section. Throws IoError.
Document entries_of(const fs::path& file, std::string_view section) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  const Document document = Document::read(file);
  if (const Index format = document.integer("format"); format != kFormat)
    throw IoError(file.string() + " has format " + std::to_string(format) + ", not " +
                  std::to_string(kFormat));
  return document.has(std::string(section)) ? document.object(std::string(section)) : Document();
}

void check_entry(std::string_view section, const Document& entry) {
  if (section == kGmmSection)
    rates_from(entry);
  else
    machine_rates_from(entry);
}

/// Entries for a file that is about to be replaced; a damaged section has none worth keeping.
Document entries_to_keep(const fs::path& file, std::string_view section) {
  try {
    const Document entries = entries_of(file, section);
    for (const std::string& key : entries.keys()) check_entry(section, entries.object(key));
    return entries;
  } catch (const IoError&) {
    return {};
  }
}

fs::path lock_of(const fs::path& file) {
  return file.string() + ".lock";
}

/// All but the oldest of `old`, then the new one.
Document with_entry(const Document& old, const std::string& key, const Document& entry) {
  std::vector<std::string> kept = old.keys();
  std::erase(kept, key);
  const std::size_t surplus = kept.size() < kMostEntries ? 0 : kept.size() - kMostEntries + 1;
  Document entries;
  for (std::size_t i = surplus; i < kept.size(); ++i) entries.set(kept[i], old.object(kept[i]));
  entries.set(key, entry);
  return entries;
}

/// Read again just before: a job beside this one may have added to it. While another one writes nothing is
/// kept (false), and is measured again some day: both write aside under one name.
bool store(const fs::path& file, std::string_view section, const std::string& key, const Document& entry) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) throw_io_error("cannot make " + file.parent_path().string(), error.value());
  const auto lock = FileLock::take(lock_of(file));
  if (!lock) return false;
  Document document;
  document.set("format", kFormat);
  for (const std::string_view each : {kGmmSection, kMachineSection}) {
    const Document kept = entries_to_keep(file, each);
    document.set(std::string(each), each == section ? with_entry(kept, key, entry) : kept);
  }
  document.write(file);
  return true;
}

constexpr const char* kNotKept = "; the rates of this machine are not kept";

/// What went wrong; empty: nothing. while_another_writes: what is then said.
std::string try_to_store(const fs::path& file, std::string_view section, const std::string& key,
                         const Document& entry, const std::string& while_another_writes) {
  try {
    if (!file.empty() && !store(file, section, key, entry)) return while_another_writes;
  } catch (const IoError& error) {
    return error.what() + std::string(kNotKept);
  }
  return {};
}

/// The entries of a section, or none with a warning where the file cannot be used.
template <typename Use>
void use_entries(const fs::path& file, std::string_view section, std::string& warning, Use use) {
  try {
    if (!file.empty()) use(entries_of(file, section));
  } catch (const IoError& error) {
    warning =
        file.string() + " cannot be used (" + error.what() + "); rates are measured again and it is replaced";
  }
}

std::optional<GmmRates> found(const fs::path& file, const std::string& key, std::string& warning) {
  std::optional<GmmRates> rates;
  use_entries(file, kGmmSection, warning, [&](const Document& entries) {
    if (entries.has(key)) rates = rates_from(entries.object(key));
  });
  return rates;
}

/// Of most ranks a node; of these, of most ranks in all.
void keep_better(const MachineRates& rates, std::optional<MachineRates>& best) {
  const auto ranks = [](const MachineRates& r) { return std::pair(r.node_ranks, r.ranks); };
  if (!best || ranks(rates) > ranks(*best)) best = rates;
}

}  // namespace

Document document_of(const MachineRates& rates) {
  Document document;
  document.set("dense_flops", std::vector<double>(rates.dense_flops.begin(), rates.dense_flops.end()));
  for (const auto& [name, number] : kMachineNumbers) document.set(name, rates.*number);
  document.set("ranks", rates.ranks);
  document.set("node_ranks", rates.node_ranks);
  document.set("slowest_host", rates.slowest_host);
  document.set("network_tcp", rates.network_tcp);
  return document;
}

MachineRates machine_rates_from(const Document& document) {
  MachineRates rates;
  const std::vector<double> dense = document.numbers("dense_flops");
  if (dense.size() != rates.dense_flops.size())
    throw IoError("expected " + std::to_string(rates.dense_flops.size()) +
                  " rates of dense products, found " + std::to_string(dense.size()));
  std::ranges::copy(dense, rates.dense_flops.begin());
  for (const auto& [name, number] : kMachineNumbers) rates.*number = document.number(name);
  rates.ranks = document.integer("ranks");
  rates.node_ranks = document.integer("node_ranks");
  rates.slowest_host = document.text("slowest_host");
  rates.network_tcp = document.boolean("network_tcp");
  const auto check = [](double rate, bool may_be_zero) {
    if (!std::isfinite(rate) || rate < 0 || (rate == 0 && !may_be_zero))
      throw IoError("expected a positive rate, found " + std::to_string(rate));
  };
  for (const double rate : dense) check(rate, false);
  for (std::size_t i = 0; i < kMachineNumbers.size(); ++i)
    check(rates.*kMachineNumbers[i].second, i >= kAlwaysMeasured);
  return rates;
}

fs::path rate_cache_file(const fs::path& cache_folder) {
  return cache_folder.empty() ? fs::path() : cache_folder / "moeloom" / "gmm-rates.json";
}

std::string rate_machine(DType element) {
  return cpu_model() + " | threads=" + std::to_string(threads()) + " | moeloom " + kVersion + " " +
         std::string(library_level()) + " | " + blas_library() +
         (element == DType::kBF16 ? " | bf16 " + std::string(name_of(best_bf16_unit())) : "");
}

RateAnswer cached_rates(const fs::path& file, const std::string& machine, const GmmCase& measured,
                        bool refresh, const std::function<GmmRates(const GmmCase&)>& measure) {
  RateAnswer answer;
  const std::string key = key_of(machine, measured);
  if (!refresh)
    if (const auto rates = found(file, key, answer.warning)) return {*rates, true, {}};
  answer.rates = measure(measured);
  const std::string warning = try_to_store(file, kGmmSection, key, document_of(answer.rates), {});
  if (!warning.empty()) answer.warning = warning;
  return answer;
}

MachineAnswer kept_machine_rates(const fs::path& file, const std::string& machine, const RateCase& sizes,
                                 Index most_node_ranks) {
  MachineAnswer answer;
  std::optional<MachineRates> network;
  use_entries(file, kMachineSection, answer.warning, [&](const Document& entries) {
    for (const std::string& key : entries.keys()) {
      const MachineRates rates = machine_rates_from(entries.object(key));
      if (rates.node_ranks > most_node_ranks || key != key_of(machine, sizes, rates)) continue;
      keep_better(rates, answer.rates);
      if (rates.measured_network()) keep_better(rates, network);
    }
  });
  if (answer.rates && network) {
    answer.rates->network_message_seconds = network->network_message_seconds;
    answer.rates->network_bytes_per_second = network->network_bytes_per_second;
    answer.rates->link_median_bytes_per_second = network->link_median_bytes_per_second;
    answer.rates->link_slowest_bytes_per_second = network->link_slowest_bytes_per_second;
    answer.rates->slowest_host = network->slowest_host;
    answer.rates->network_tcp = network->network_tcp;
  }
  return answer;
}

std::string keep_machine_rates(const fs::path& file, const std::string& machine, const RateCase& sizes,
                               const MachineRates& rates) {
  return try_to_store(file, kMachineSection, key_of(machine, sizes, rates), document_of(rates),
                      "another process writes " + file.string() + kNotKept);
}

}  // namespace moeloom
