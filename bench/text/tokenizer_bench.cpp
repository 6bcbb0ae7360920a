// How fast does a text become token ids?
//
//   bible -f Gen1:1-Rev22:21 > kjv.txt
//   build/bench/tokenizer_bench --tokenizer tokenizer.json --text kjv.txt --threads 1,2
//
// A row is one way of giving the text: whole, in one call, which one thread encodes; or its lines, which all
// threads share. The words of the first, warming round are known in the timed ones, as in a long file. Beside
// the reference implementation: bench/text/tokenizers_npm.mjs.
#include "io/text_file.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/text/tokenizer.hpp"

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <optional>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  std::string tokenizer, text, json;
  std::string threads = "1";
  int samples = 5;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description known("tokenizer_bench: text to token ids");
  known.add_options()("tokenizer", po::value(&o.tokenizer)->required(), "a tokenizer.json")(
      "text", po::value(&o.text)->required(), "a file of text")(
      "threads", po::value(&o.threads)->default_value(o.threads), "thread counts for lines");
  bench::add_row_options(known, o.samples, "timed rounds", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  return o;
}

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

class Table {
 public:
  Table(const Options& options, std::size_t bytes) : options_(options), bytes_(static_cast<double>(bytes)) {}

  /// encode() returns the number of ids.
  void measure(const std::string& way, int threads, const std::function<std::size_t()>& encode) {
    set_threads(threads);
    const std::size_t ids = encode();
    Samples samples;
    for (int i = 0; i < options_.samples; ++i) samples.push_back(seconds_of(encode));
    const Spread spread = spread_of(samples);
    std::printf("%-8s %7d threads %9zu ids %9.1f ms (%.1f to %.1f) %8.1f MB/s\n", way.c_str(), threads, ids,
                1e3 * spread.median, 1e3 * spread.p10, 1e3 * spread.p90, bytes_ / spread.median / 1e6);
    rows_.push_back({{"way", way}, {"threads", threads}, {"ids", ids}, {"encode_ms", 1e3 * spread.median}});
  }

  const nlohmann::ordered_json& rows() const { return rows_; }

 private:
  const Options& options_;
  double bytes_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

void run(const Options& o) {
  const std::string text = read_text_file(o.text);
  const std::vector<std::string_view> lines = lines_of(text);
  std::optional<Tokenizer> tokenizer;
  const double loading = seconds_of([&] { tokenizer = Tokenizer::load(o.tokenizer); });
  std::printf("%s\n%s: %zu bytes, %zu lines; %s: loaded in %.0f ms\n", bench::environment_line(1).c_str(),
              o.text.c_str(), text.size(), lines.size(), o.tokenizer.c_str(), 1e3 * loading);
  Table table(o, text.size());
  for (const std::string& threads : bench::words(o.threads))
    table.measure("lines", std::stoi(threads), [&] {
      std::size_t ids = 0;
      for (const auto& line : tokenizer->encode_all(lines, false)) ids += line.size();
      return ids;
    });
  table.measure("whole", 1, [&] { return tokenizer->encode(text, false).size(); });
  bench::write_json(o.json, table.rows());
}

}  // namespace

int main(int argc, char** argv) {
  return moeloom::bench::run_main("tokenizer_bench", argc, argv, parse, run);
}
