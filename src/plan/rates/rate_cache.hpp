// Rates of the GMM policy and of the planner, measured once a machine: a file in the user's cache folder.
//
//   gmm-rates.json   {"format": ..., "rates":    {"<machine> | <case>": {"loop_seconds": ..., ...}, ...},
//                                    "machines": {"<machine> | <case>": {"dense_flops": [...], ...}, ...}}
//
// Who writes it holds gmm-rates.json.lock. Losing it costs a second, so nothing about it is an error: what
// cannot be read is measured anew, what cannot be written is a warning.
#pragma once

#include "moeloom/io/document.hpp"
#include "plan/rates/calibration.hpp"
#include "plan/rates/machine_rates.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace moeloom {

/// The file in a cache folder as $XDG_CACHE_HOME or ~/.cache names it; empty for none.
std::filesystem::path rate_cache_file(const std::filesystem::path& cache_folder);

/// Whatever else the rates depend on: CPU model, threads of the rank, version of this program and of BLAS,
/// and what packed products multiply.
std::string rate_machine(DType element = DType::kF32);

struct RateAnswer {
  GmmRates rates;
  bool cached = false;
  std::string warning;  // empty: none
};

/// The file's rates of `machine` and `measured`, or those of `measure`, which are then put into the file.
/// refresh: measures whatever the file says. Empty file: measures, keeps nothing.
RateAnswer cached_rates(const std::filesystem::path& file, const std::string& machine,
                        const GmmCase& measured, bool refresh,
                        const std::function<GmmRates(const GmmCase&)>& measure);

/// As an entry of the file has them.
Document document_of(const MachineRates& rates);
/// Throws IoError for what is missing, and for rates that no measurement gives.
MachineRates machine_rates_from(const Document& document);

struct MachineAnswer {
  std::optional<MachineRates> rates;
  std::string warning;  // empty: none
};

/// The file's rates of `machine` and `sizes` that most ranks of a node measured together, of up to
/// most_node_ranks; the network's, which is of whole nodes, from the like measurement that several nodes
/// made.
MachineAnswer kept_machine_rates(const std::filesystem::path& file, const std::string& machine,
                                 const RateCase& sizes, Index most_node_ranks);
/// Puts them into the file -> a warning, or nothing.
std::string keep_machine_rates(const std::filesystem::path& file, const std::string& machine,
                               const RateCase& sizes, const MachineRates& rates);

}  // namespace moeloom
