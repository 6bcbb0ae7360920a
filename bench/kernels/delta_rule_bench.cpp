// How near does the gated delta rule come to the multiply-add peak, forward and backward?
//
// Forward, backward and both, each in turn with the peak; a fraction is of the FLOPs that delta_rule.hpp
// counts. The inputs are columns of one matrix, as the convolution leaves them.
#include "kernels/delta_rule.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  Index tokens = 4096, sequences = 1, key_heads = 4, value_heads = 8, key_dim = 128, value_dim = 128;
  int threads = 1, samples = 11;
  std::string json;
};

/// Numbers, and the shape with its segments.
class Subject {
 public:
  explicit Subject(const Options& o)
      : keys_(o.key_heads * o.key_dim),
        values_(o.value_heads * o.value_dim),
        mixed_(filled(o.tokens * o.sequences, 2 * keys_ + values_, 1)),
        d_mixed_(o.tokens * o.sequences, 2 * keys_ + values_),
        d_output_(filled(o.tokens * o.sequences, values_, 2)),
        output_(d_output_.rows(), values_),
        delta_(d_output_.rows(), values_),
        log_decay_(filled(d_output_.rows(), o.value_heads, 3)),
        beta_(filled(d_output_.rows(), o.value_heads, 4)),
        d_log_decay_(beta_.rows(), beta_.cols()),
        d_beta_(beta_.rows(), beta_.cols()) {
    for (Index s = 0; s <= o.sequences; ++s) offsets_.push_back(s * o.tokens);
    shape_ = {o.key_heads, o.value_heads, o.key_dim, o.value_dim, offsets_};
    for (float& g : log_decay_.view().flat()) g = -0.1f * std::abs(g);
    for (float& b : beta_.view().flat()) b = 1 / (1 + std::exp(-b));
  }

  const DeltaRuleShape& shape() const { return shape_; }
  void forward() { delta_rule_forward(shape_, inputs(), {}, output_, delta_, {}); }
  void backward() {
    const MatrixView d = d_mixed_;
    delta_rule_backward(shape_, {inputs(), delta_, {}}, d_output_, {},
                        {d.cols_from(0, keys_),
                         d.cols_from(keys_, keys_),
                         d.cols_from(2 * keys_, values_),
                         d_log_decay_,
                         d_beta_,
                         {}});
  }

 private:
  static Matrix filled(Index rows, Index cols, std::uint64_t seed) {
    Matrix m = Matrix::uninitialised(rows, cols);
    const CounterRandom random(seed, stream_of("bench"));
    std::uint64_t place = 0;
    for (float& x : m.view().flat()) x = static_cast<float>(random.normal(place++));
    return m;
  }
  /// Columns of one matrix, as the convolution leaves them.
  DeltaRuleInputs inputs() const {
    const ConstMatrixView m = mixed_;
    return {m.cols_from(0, keys_), m.cols_from(keys_, keys_), m.cols_from(2 * keys_, values_), log_decay_,
            beta_};
  }

  Index keys_, values_;
  Matrix mixed_, d_mixed_, d_output_, output_, delta_, log_decay_, beta_, d_log_decay_, d_beta_;
  std::vector<Index> offsets_;
  DeltaRuleShape shape_;
};

void run(const Options& o) {
  set_threads(o.threads);
  Subject subject(o);
  std::printf("%s, samples %d, %ld sequences of %ld tokens, heads %ld/%ld of %ld/%ld\n",
              bench::environment_line(o.threads).c_str(), o.samples, o.sequences, o.tokens, o.key_heads,
              o.value_heads, o.key_dim, o.value_dim);
  std::printf("%-10s %9s %8s %8s %9s (p10..p90 of the peak in the same round)\n", "", "GFLOP", "ms",
              "GFLOP/s", "fraction");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const auto measure = [&](const char* name, double flops, const std::function<void()>& work) {
    const Contest contest = compete(
        {{name, work}}, flops, [&](double seconds) { return fma_peak_gflops(o.threads, seconds); },
        o.samples);
    const Standing& s = contest.standings.front();
    std::printf("%-10s %9.2f %8.2f %8.1f %9.3f (%.3f..%.3f), peak %.1f\n", name, 1e-9 * flops,
                1e-6 * flops / s.gflops, s.gflops, s.fraction.median, s.fraction.p10, s.fraction.p90,
                contest.peak_gflops);
    rows.push_back({{"op", name},
                    {"threads", o.threads},
                    {"tokens", o.tokens},
                    {"sequences", o.sequences},
                    {"key_dim", o.key_dim},
                    {"value_dim", o.value_dim},
                    {"gflops", s.gflops},
                    {"fraction", s.fraction.median},
                    {"fraction_p10", s.fraction.p10},
                    {"fraction_p90", s.fraction.p90}});
  };
  const double forward = delta_rule_forward_flops(subject.shape());
  const double backward = delta_rule_backward_flops(subject.shape());
  measure("forward", forward, [&] { subject.forward(); });
  measure("backward", backward, [&] { subject.backward(); });
  measure("both", forward + backward, [&] { subject.forward(), subject.backward(); });
  bench::write_json(o.json, rows);
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("How near the gated delta rule comes to the multiply-add peak");
  bench::add_sizes(known, {{"tokens", &o.tokens, "of a sequence"},
                           {"sequences", &o.sequences, "sequences"},
                           {"key-heads", &o.key_heads, "heads of query and key"},
                           {"value-heads", &o.value_heads, "heads of value"},
                           {"key-dim", &o.key_dim, "size of a head of query and key"},
                           {"value-dim", &o.value_dim, "size of a head of value"}});
  known.add_options()("threads", po::value(&o.threads)->default_value(o.threads), "threads");
  bench::add_row_options(known, o.samples, "rounds of peak and kernel", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main("delta_rule_bench", argc, argv, parse, run);
}
