#include "io/text_file.hpp"
#include "measure/sweep/comparison.hpp"
#include "measure/sweep/file.hpp"
#include "measure/sweep/page.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/version.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "plan/rates/cpu_model.hpp"

#include <algorithm>
#include <ctime>
#include <thread>

#include "cli/environment.hpp"
#include "cli/file_errors.hpp"
#include "cli/rows/bench_ep_options.hpp"
#include "cli/rows/flag_words.hpp"
#include "commands/commands.hpp"
#include "log/program_log.hpp"
#include "open/model_folder.hpp"
#include "open/processors.hpp"
#include "open/run_decision.hpp"
#include "open/run_setup.hpp"

namespace moeloom {
namespace {

struct BenchRequest {
  BenchEpOptions options;
  ModelConfig config;
  RunFlags flags;
};

/// Throws ConfigError with all that is wrong.
BenchRequest read_request(int argc, const char* const* argv, Index world) {
  if (argc < 2 || std::string_view(argv[1]) != "ep")
    throw ConfigError({"moeloom bench needs to know what; known: ep, as in `moeloom bench ep`"});
  BenchRequest request;
  Violations violations;
  request.options = parse_bench_ep_options(argc - 1, argv + 1);
  violations.attempt([&] { request.flags = read_environment(); });
  const std::vector<DType>& dtypes = request.options.sweep.dtypes;
  if (std::ranges::count(dtypes, DType::kBF16) > 0 && !cpu_has_bf16() &&
      request.flags.bf16 != Bf16Request::kEmulate)
    violations.add("--dtype bf16: " + std::string(why_no_bf16()) +
                   "; leave bf16 out, or set MOELOOM_BF16=emulate, which is slow");
  violations.attempt([&] {
    request.config = config_of(request.options.model);
    violations.add(bench_ep_violations(request.options, request.config, world));
  });
  violations.throw_if_any();
  return request;
}

/// Text of everything that must be the same on all ranks.
std::string fingerprint(const BenchRequest& request, Index world) {
  std::string text =
      settings_text(request.options.sweep, request.config, decisive_environment(request.flags), "");
  for (const EpGroup& group : groups_of(request.options.sweep, request.config.num_experts, world))
    for (const EpPoint& point : group) text += "\n" + text_of(point);
  return text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string model_text(const ModelConfig& c, const BenchEpOptions& o) {
  const auto number = [](Index n) { return std::to_string(n); };
  return number(c.num_hidden_layers) + " layers, hidden " + number(c.hidden_size) + ", " +
         number(c.num_experts) + " experts of " + number(c.moe_intermediate_size) + ", top-" +
         number(c.num_experts_per_tok) + ", sequences of " + number(o.sweep.sequence_length);
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

/// A rank alone has nobody to hold a replica.
AskedExchange exchange_of(const EpPoint& point, const SweepSettings& sweep) {
  return {.dispatcher = point.dispatcher, .rebalance = sweep.rebalance && point.ep > 1};
}

/// What a run decides that asks for the point.
SetUpPoint as_a_run_decides(const BenchRequest& request) {
  return [&request](const EpPoint& point, const Mesh& mesh) -> PointSetup {
    RunFlags flags = request.flags;
    flags.gmm = point.gmm;
    KernelOptions choice;
    choice.dtype = point.dtype;
    const RunRequest asked = run_request(choice, exchange_of(point, request.options.sweep), flags);
    const Job job{.batch = {.sequences = point.ranks, .length = ceil_div(point.tokens, point.ranks)},
                  .layout = {.threads = threads(), .pretended_nodes = flags.pretended_nodes}};
    const RunFacts facts = find_run_facts(request.config, mesh, job);
    const RunDecision decision = decide_run(facts, asked, mesh.world());
    // A fallback to fp32 would stand in the report beside the bf16 that was asked for. Where auto takes the
    // loop, it is fp32.
    if (point.dtype == DType::kBF16 && decision.dtype.type != DType::kBF16 && decision.gmm.apply)
      throw AgreedError("--dtype bf16: " + decision.dtype.reason + "; leave bf16 out of --dtype");
    const bool grouped = std::ranges::any_of(decision.kernels, [](const KernelReport& report) {
      return report.id == "fused_moe" && report.applied;
    });
    return {.kernels = decision.table,
            .dispatcher = open_dispatcher(decision, mesh, request.config.num_experts),
            .travel = decision.job.exchange,
            .dtype = decision.dtype.type,
            .gmm_applied = grouped,
            .gmm_reason = with_flags(decision.gmm.reason),
            .dispatcher_reason = with_flags(decision.why.dispatcher)};
  };
}

Event event_of(const EpRow& row) {
  return Event()
      .with("point", row.point)
      .with("ms", row.step_ms.median)
      .with("p10", row.step_ms.p10)
      .with("p90", row.step_ms.p90)
      .with("tok/s", row.tokens_per_s)
      .with("error", row.error)
      .with("tolerance", row.tolerance);
}

/// A sweep from its first missing point to its report.
class Sweep {
 public:
  Sweep(const BenchRequest& request, ProgramLog& log)
      : options_(request.options),
        groups_(groups_of(options_.sweep, request.config.num_experts, Communicator::world().size())),
        world_(options_.sweep, request.config, as_a_run_decides(request), groups_),
        log_(log) {
    const std::string machine = cpu_model() + " | " + first_line(moeloom_version()) + " " +
                                std::string(library_level()) + " | " + blas_library();
    const std::string settings =
        settings_text(options_.sweep, request.config, decisive_environment(request.flags), machine);
    blank_.model = model_text(request.config, options_);
    // Rank 0's machine speaks for all, and its file knows what is there.
    blank_.settings = world_.world().all_gather_text(settings).front();
    blank_.cpu = cpu_model();
    blank_.processors = std::thread::hardware_concurrency();
    blank_.nodes = world_.mesh(1).nodes();
    blank_.threads = static_cast<Index>(world_.world().all_max(threads()));
    const std::string mpi = mpi_library_version();
    blank_.mpi = mpi.substr(0, mpi.find(','));
    blank_.blas = blas_library();
    blank_.version = first_line(moeloom_version());
    blank_.commit = options_.sweep.commit;
  }

  void run() {
    on_rank_0([&] { file_.emplace(options_.out); });
    for (const EpGroup& group : groups_) {
      const Index known = kept(group);
      if (known > 0) log_.info(Event().with("kept", known).with("of", text_of(group.front())));
      if (known < std::ssize(group)) keep(measure(world_, group, blank_));
    }
    on_rank_0([&] { write_results(); });
    log_.info(Event().with("report", (options_.out / "report.html").string()));
  }

 private:
  template <typename Work>
  void on_rank_0(Work work) {
    agree(world_.world(), [&] {
      if (world_.world().rank() == 0) work();
    });
  }

  bool has(const EpPoint& point) const { return file_ && file_->has(key_of(row_of(point, blank_))); }

  /// Points that rank 0's file holds, the same number on every rank. Ratios are of points in turn, so that a
  /// comparison of which one is missing is measured whole.
  Index kept(const EpGroup& group) const {
    const Index known = std::ranges::count_if(group, [this](const EpPoint& point) { return has(point); });
    return std::stol(world_.world().all_gather_text(std::to_string(known)).front());
  }

  void keep(std::vector<EpRow> rows) {
    on_rank_0([&] {
      for (EpRow& row : rows) {
        if (file_->has(key_of(row))) continue;
        row.measured_at = now_text();
        file_->append(row);
        say(row);
      }
      write_results();
    });
  }

  void say(const EpRow& row) const {
    if (row.skipped.empty())
      log_.info(event_of(row));
    else
      log_.warn(Event().with("point", row.point).with("skipped", row.skipped));
  }

  void write_results() const {
    replace_file(options_.out / "points.csv", csv_of(file_->rows()));
    replace_file(options_.out / "report.html", page_html(sweep_report(file_->rows(), blank_.settings)));
  }

  const BenchEpOptions& options_;
  const std::vector<EpGroup> groups_;
  const SweepWorld world_;
  ProgramLog& log_;
  EpRow blank_;                     // of no point: settings and machine
  std::optional<PointsFile> file_;  // rank 0
};

}  // namespace

int bench_command(int argc, char** argv) {
  const Communicator world = Communicator::world();
  BenchRequest request;
  agree(world, [&] { request = with_file_errors([&] { return read_request(argc, argv, world.size()); }); });
  require_same_on_all_ranks(fingerprint(request, world.size()), world);
  set_threads(threads_for(request.options.threads, request.flags.threads, world.split_by_node()));
  ProgramLog log({.rank = world.rank(), .level = request.flags.log_level});
  Sweep(request, log).run();
  return 0;
}

}  // namespace moeloom
