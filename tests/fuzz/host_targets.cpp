// Parsers of what surrounds a rank: the environment, what launchers set, and what ranks left for each other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "app/cli/environment.hpp"
#include "app/cli/host_limits.hpp"
#include "app/cli/host_network.hpp"
#include "app/tokenize/tokenize_progress.hpp"
#include "app/watch/stall.hpp"
#include "fuzz/json_words.hpp"
#include "fuzz/lines.hpp"
#include "fuzz/target.hpp"

namespace moeloom::fuzz {
namespace {

EnvironmentLookup lookup_in(std::string_view input) {
  return [lines = lines_of(input)](const std::string& name) -> std::optional<std::string> {
    for (const std::string& line : lines)
      if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
    return std::nullopt;
  };
}

void run_environment(std::string_view input) {
  const EnvironmentLookup lookup = lookup_in(input);
  const RunFlags flags = read_environment(lookup);
  expect(!flags.threads || *flags.threads >= 1, "less than one thread");
}

std::vector<std::string> environment_seeds() {
  return {"MOELOOM_PATCH=1\nTWINKLE_NPU_PATCH=0\nOMP_NUM_THREADS=4,2\n",
          "MOELOOM_GMM_PATCH=force\nMOELOOM_BF16=emulate\nMOELOOM_PRETEND_NODES=2\n",
          "OMPI_COMM_WORLD_RANK=3\nMOELOOM_LOG=debug\nXDG_CACHE_HOME=/tmp\nHOME=x\n"};
}

// ---- what launchers set ----------------------------------------------------------------------------------

/// Of a decimal number that has up to ten digits, and k, m or g behind it, and is an int.
std::optional<double> plain_size(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 10 || text.front() == '0' || text.size() > digits + 1) return std::nullopt;
  double bytes = 0;
  for (std::size_t i = 0; i < digits; ++i) bytes = 10 * bytes + (text[i] - '0');
  if (digits < text.size()) {
    const std::size_t unit = std::string_view("kKmMgG").find(text[digits]);
    if (unit == std::string_view::npos) return std::nullopt;
    bytes = std::ldexp(bytes, 10 * (1 + static_cast<int>(unit) / 2));
  }
  return bytes < std::ldexp(1, 31) ? std::optional(bytes) : std::nullopt;
}

/// On a host that is the same everywhere, but for which folders it has: a segment's may be any.
void run_launcher(std::string_view input) {
  const EnvironmentLookup lookup = lookup_in(input);
  launcher_rank(lookup);
  launcher_ranks(lookup);
  HostLimits limits = limits_of_this_host(lookup);
  limits.host = "host";
  limits.processors = 8;
  limits.quota = 1.5;
  limits.copies_refused = true;
  const auto size = lookup("OMPI_MCA_btl_vader_segment_size");
  const std::optional<double> asked =
      limits.segments && size && !lookup("OMPI_MCA_btl_sm_segment_size") ? plain_size(*size) : std::nullopt;
  if (!limits.segments) limits.segments.emplace();
  limits.segments->total_bytes = limits.segments->free_bytes = Index{1} << 26;
  const HostAnswer answer = host_answer(limits);
  const double needed = asked.value_or(static_cast<double>(limits.segments->segment_bytes));
  const bool has_room = limits.ranks < 2 || needed <= static_cast<double>(limits.segments->free_bytes);
  expect(has_room || !answer.violations.empty(), "a rank that finds no room is started");
  const HostAddress four{.interface = "eth0", .bytes = {10, 0, 0, 1}, .prefix_bits = 24};
  const HostAddress six{.interface = "eth1", .six = true, .bytes = {0xfd, 0, 0x77}, .prefix_bits = 64};
  network_violations(asked_networks(lookup), "host", std::array{four, six});
}

std::vector<std::string> launcher_seeds() {
  return {
      "OMPI_COMM_WORLD_LOCAL_SIZE=4\nOMPI_MCA_btl_vader_segment_size=9223372036854775807\nOMP_NUM_THREADS="
      "2\n",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2147483647\nOMPI_MCA_btl=^tcp\nOMPI_MCA_pml=ob1\n",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2\nOMPI_MCA_btl_vader_segment_size=65M\n",
      "SLURM_STEP_TASKS_PER_NODE=2(x3),1\nSLURM_NODEID=3\nSLURM_NTASKS=7\nSLURM_PROCID=6\n",
      "MOELOOM_NET=10.0.0.0/24,eth1\nOMPI_MCA_btl_tcp_if_include=10.0.0.0/24,eth1\n",
      "MOELOOM_NET=fd00:77::/64\nOMPI_MCA_btl_tcp_if_include=eth1\nOMPI_MCA_smsc=cma\n"};
}

// ---- positions of ranks, and of a tokenization -----------------------------------------------------------

/// A line is what the watcher of a rank left; one that is empty, or no position, was not heard.
void run_positions(std::string_view input) {
  std::vector<std::optional<RankPosition>> positions;
  for (const std::string& line : lines_of(input)) {
    auto& position = positions.emplace_back();
    try_it([&] { position = RankPosition::from(Document::parse(line, "position")); });
    if (!position) continue;
    const std::string text = position->to_document().dump();
    expect(RankPosition::from(Document::parse(text, "again")).to_document().dump() == text,
           "a position that was written reads back as another");
  }
  positions.erase(positions.begin());  // the command's name
  if (positions.empty()) return;
  const Stall stall = find_stall(positions);
  for (const Index rank : stall.ranks)
    expect(rank >= 0 && rank < std::ssize(positions), "a rank that the job has not");
  expect(!stall_text(stall, positions).empty(), "a stall without a word");
}

std::vector<std::string> positions_seeds() {
  RankPosition rank;
  rank.host = "h";
  rank.seconds = 31;
  rank.position.activity = Activity::kTraining;
  rank.position.step = 4;
  rank.position.layer = 2;
  const std::string ahead = rank.to_document().dump(-1);
  rank.position.backward = true;
  rank.position.call = "MPI_Waitall";
  const std::string behind = rank.to_document().dump(-1);
  rank.position.layer = std::numeric_limits<Index>::min();
  return {ahead + "\n" + behind, ahead + "\n" + rank.to_document().dump(-1), ahead + "\n\n" + ahead, ahead};
}

void run_progress(std::string_view input) {
  const TokenizeProgress progress = TokenizeProgress::from(Document::parse(input, "progress"), "progress");
  const std::string text = progress.to_document().dump();
  expect(TokenizeProgress::from(Document::parse(text, "again"), "again").to_document().dump() == text,
         "what was written reads back as another");
  Index bytes = 0;
  for (const Index count : {progress.place.file, progress.place.offset, progress.place.line,
                            progress.documents, progress.position.tokens, progress.position.sequences})
    expect(count >= 0 && !__builtin_mul_overflow(count, 8, &bytes), "a count that nothing has");
}

std::vector<std::string> progress_seeds() {
  TokenizeProgress progress;
  const std::string first = progress.to_document().dump();
  progress = {"0123456789abcdef", {1, 20, 3}, 4, {50, 4}};
  return {first, progress.to_document().dump()};
}

}  // namespace

std::vector<Target> host_targets() {
  return {
      {"environment",
       run_environment,
       environment_seeds,
       {"MOELOOM_", "TWINKLE_NPU_", "PATCH=", "FUSED_OPS=", "GMM_PATCH=", "OMP_NUM_THREADS=", "auto", "4,2"}},
      {"launcher",
       run_launcher,
       launcher_seeds,
       {"OMPI_MCA_btl_vader_segment_size=",
        "OMPI_MCA_btl_vader_backing_directory=",
        "OMPI_MCA_btl=",
        "OMPI_MCA_pml=",
        "OMPI_MCA_smsc=",
        "OMPI_COMM_WORLD_LOCAL_SIZE=",
        "SLURM_STEP_TASKS_PER_NODE=",
        "SLURM_NODEID=",
        "OMP_NUM_THREADS=",
        "MOELOOM_NET=",
        "OMPI_MCA_btl_tcp_if_include=",
        "(x",
        "^",
        ",",
        "/",
        "::",
        "eth0",
        "9223372036854775807",
        "-1",
        "\n"}},
      {"positions", run_positions, positions_seeds,
       with_json({"\n", "\"layer\"", "\"backward\"", "\"state\"", "\"T\"", "\"call\"", "\"step\"",
                  "\"seconds\"", "\"activity\"", "\"training\"", "\"phase\"", "\"loss\"", "true"})},
      {"tokenize_progress", run_progress, progress_seeds,
       with_json({"\"file\"", "\"offset\"", "\"line\"", "\"tokens\"", "\"sequences\"", "\"documents\""})}};
}

}  // namespace moeloom::fuzz
