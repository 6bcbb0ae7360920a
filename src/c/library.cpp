// What the library is, and what it has decided: no arrays.
#include "base/text.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/version.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <optional>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// In quotes, as JSON has it.
std::string in_quotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

const char* word(bool holds) {
  return holds ? "true" : "false";
}

std::string machine_text() {
  return std::string("{\"version\": ") + in_quotes(kVersion) + ", \"abi\": " + std::to_string(ML_ABI) +
         ", \"level\": " + in_quotes(library_level()) + ", \"avx512\": " + word(cpu_has_avx512()) +
         ", \"bf16\": " + in_quotes(name_of(best_bf16_unit())) +
         ", \"blas\": " + in_quotes(trimmed(blas_library())) +
         ", \"mpi\": " + in_quotes(trimmed(mpi_library_version())) +
         ", \"mpi_running\": " + word(ml_mpi_running() != 0) + ", \"threads\": " + std::to_string(threads()) +
         "}";
}

GmmFacts facts_of(const ml_gmm_facts& given) {
  constexpr Index kBudget = Index{4} << 30;  // as that of a run
  check(given.hidden >= 0 && given.intermediate >= 0 && given.experts >= 0,
        [] { return "hidden, intermediate and experts must not be negative"; });
  Index expert = 0, resident = 0, packed = 0;
  check(!__builtin_mul_overflow(given.hidden, given.intermediate, &expert) &&
            !__builtin_mul_overflow(expert, 3 * Index{sizeof(float)}, &expert) &&
            !__builtin_mul_overflow(expert, given.experts, &resident) &&
            !__builtin_mul_overflow(resident, 2, &packed),
        [] { return "the experts have more bytes than can be counted"; });
  return {.ep_size = given.ep > 0 ? std::optional(given.ep) : std::nullopt,
          .resident_bytes = resident,
          .packed_bytes = packed,
          .budget_bytes = given.budget_bytes > 0 ? given.budget_bytes : kBudget,
          .contiguous = given.not_contiguous == 0,
          .expert_bytes = expert,
          .rows_per_expert = given.rows_per_expert,
          .avx512 = cpu_has_avx512(),
          .loop_may_run = given.rows_per_expert > 0};
}

GmmRequest request_of(const char* text) {
  const auto request = gmm_request_from_text(&given(text, "request"));
  if (!request)
    throw ConfigError(
        {"unknown request \"" + std::string(text) + "\"; known: " + std::string(kGmmRequestTexts)});
  return *request;
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

int32_t ml_abi(void) {
  return ML_ABI;
}

const char* ml_version(void) {
  return moeloom::kVersion;
}

const char* ml_last_error(void) {
  return last_failure();
}

ml_status ml_machine(char* text, int64_t size) {
  return answered([&] { write_text(machine_text(), text, size); });
}

ml_status ml_set_threads(int64_t threads) {
  return answered([&] { choose_threads(threads); });
}

int64_t ml_threads(void) {
  int64_t now = 0;
  guarded([&] { now = moeloom::threads(); });
  return now;
}

void ml_release_copies(void) {
  release_kept_floats();
}

ml_status ml_decide_gmm(const char* request, const ml_gmm_facts* facts, int32_t* applies, char* reason,
                        int64_t size) {
  return answered([&] {
    const moeloom::GmmRequest asked = request_of(request);
    const moeloom::GmmDecision decision = decide_gmm(asked, facts_of(known_part(facts, "ml_gmm_facts")));
    given(applies, "applies") = decision.apply;
    write_text(decision.reason, reason, size);
  });
}
