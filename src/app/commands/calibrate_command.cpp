#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "plan/rates/rate_cache.hpp"

#include <cstdio>

#include "cli/environment.hpp"
#include "cli/file_errors.hpp"
#include "commands/commands.hpp"
#include "commands/plan_words.hpp"
#include "commands/rate_source.hpp"
#include "open/processors.hpp"

namespace moeloom {
namespace {

void line(const char* what, double value, const char* unit) {
  std::printf("  %-34s %10s %s\n", what, rounded_text(value).c_str(), unit);
}

void link_line(const char* what, double bytes_per_second) {
  std::printf("  %-34s %10s Gbit/s\n", what, readable(8e-9 * bytes_per_second).c_str());
}

/// options: as measured, their threads settled.
void print_rates(const MachineRates& rates, const CalibrateOptions& options) {
  std::printf("of one rank with %lld threads, %lld ranks at work together\n",
              static_cast<long long>(options.threads), static_cast<long long>(rates.ranks));
  for (std::size_t i = 0; i < kRateRows.size(); ++i)
    line(("dense products, " + std::to_string(kRateRows[i]) + " rows").c_str(), 1e-9 * rates.dense_flops[i],
         "GFLOP/s");
  line("attention", 1e-9 * rates.attention_flops, "GFLOP/s");
  line("head and loss", 1e-9 * rates.head_flops, "GFLOP/s");
  line("router", 1e-3 * rates.router_tokens, "k tokens/s");
  line("plan of an exchange", 1e-6 * rates.plan_slots, "M slots/s");
  line("norms and sums", 1e-9 * rates.elementwise_bytes, "GB/s");
  line("copied rows", 1e-9 * rates.copy_bytes, "GB/s");
  line("AdamW", 1e-6 * rates.updated_elements, "M elements/s");
  if (rates.expert_slowdown != 1)
    line("experts beside the others' at work", rates.expert_slowdown, "times as long");
  if (!rates.measured_node() && !rates.measured_network())
    std::printf("  one rank exchanges nothing: `%s` measures that too\n",
                calibrate_line(options, 2, 1).c_str());
  if (rates.measured_node()) {
    line("exchange in a node, a message", 1e6 * rates.node_message_seconds, "us");
    line("exchange in a node, a rank", 1e-9 * rates.node_bytes_per_second, "GB/s");
    line("meeting of the node", 1e6 * rates.meeting_seconds, "us");
  }
  if (rates.measured_network()) {
    line("exchange between nodes, a message", 1e6 * rates.network_message_seconds, "us");
    link_line("exchange between nodes, a node", rates.network_bytes_per_second);
  }
  if (!rates.slowest_host.empty()) {
    link_line("link of a host, the median", rates.link_median_bytes_per_second);
    link_line(("link of a host, the slowest: " + rates.slowest_host).c_str(),
              rates.link_slowest_bytes_per_second);
  }
  if (rates.unequal_links())
    std::printf(
        "warning: host %s has %s of the median host's rate, and every exchange waits for it\n",
        rates.slowest_host.c_str(),
        readable(rates.link_slowest_bytes_per_second / rates.link_median_bytes_per_second, 2).c_str());
}

}  // namespace

int calibrate_command(int argc, char** argv) {
  const Communicator world = Communicator::world();
  CalibrateOptions options;
  RunFlags flags;
  ModelConfig config;
  agree(world, [&] {
    with_file_errors([&] {
      options = parse_calibrate_options(argc, argv);
      flags = read_environment();
      config = checked_config(options.model);
      require_dtype(options.dtype, flags);
    });
  });
  set_threads(threads_for(options.threads, flags.threads, world.split_by_node()));
  const RateCase sizes = rate_case(config, options.sequence_length);
  const MachineRates rates = measure_machine_rates(sizes, usual_kernels(config, kSumChunkRows, options.dtype),
                                                   world, options.seconds);
  if (world.rank() != 0) return 0;
  options.threads = threads();
  print_rates(rates, options);
  const std::filesystem::path file = rate_cache_file(flags.cache_folder);
  const std::string warning = keep_machine_rates(file, rate_machine(options.dtype), sizes, rates);
  if (!warning.empty())
    std::printf("warning: %s\n", warning.c_str());
  else if (file.empty())
    std::printf("not kept: neither XDG_CACHE_HOME nor HOME names a folder\n");
  else
    std::printf("kept in %s, for models of these sizes\n", file.c_str());
  return 0;
}

}  // namespace moeloom
