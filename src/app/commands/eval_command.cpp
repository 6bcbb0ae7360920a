#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "commands/ask_request.hpp"
#include "commands/commands.hpp"

namespace moeloom {
namespace {

void print(const std::string& name, const Score& score) {
  std::printf("%-32s %10lld %12.4f %12.4f", name.c_str(), static_cast<long long>(score.tokens),
              score.nats_per_token(), std::exp(score.nats_per_token()));
  if (score.bytes > 0)
    std::printf(" %12.4f\n", score.bits_per_byte());
  else
    std::printf(" %12s\n", "-");
}

/// A line an example, of rank 0; none without a file.
class LinesFile {
 public:
  explicit LinesFile(std::filesystem::path path) : path_(std::move(path)) {}

  /// Throws IoError, as add().
  void open() {
    if (path_.empty()) return;
    file_.open(path_);
    check();
  }
  void add(const std::string& source, const std::vector<ExampleScore>& examples) {
    if (path_.empty()) return;
    for (const auto& [example, logprobs] : examples) {
      Document line;
      line.set("source", source);
      line.set("example", example);
      line.set("tokens", static_cast<Index>(logprobs.size()));
      line.set("logprob", std::accumulate(logprobs.begin(), logprobs.end(), 0.0));
      line.set("logprobs", logprobs);
      file_ << line.dump(-1) << '\n';
    }
    file_.flush();
    check();
  }

 private:
  void check() const {
    if (!file_) throw_io_error("cannot write " + path_.string(), errno);
  }

  const std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace

int eval_command(int argc, char** argv) {
  Violations violations;
  const auto options = agree_on_options(argc, argv, parse_eval_options, violations);
  ProgramLog log{LogSettings()};
  LinesFile lines(options.logprobs);
  Asking model = asked_model(options.ask, violations, log, [&] {
    lines.open();
    std::printf("%-32s %10s %12s %12s %12s\n", "source", "tokens", "nats/token", "perplexity", "bits/byte");
  });
  Score all;
  model.score_files(options.score, [&](const DataSource& source, const Score& score,
                                       const std::vector<ExampleScore>& examples) {
    const std::string name = source.file.filename().string();
    print(name, score);
    all += score;
    lines.add(name, examples);
  });
  if (speaks() && options.score.sources.size() > 1) print("all", all);
  return 0;
}

}  // namespace moeloom
