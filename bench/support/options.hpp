// What reading the options of a benchmark shares.
#pragma once

#include "moeloom/base/index.hpp"

#include <exception>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

namespace moeloom::bench {

/// Reads argv into the variables that `known` names. False: --help was asked and `known` was printed, so
/// there is nothing to run. Throws what Boost says about an option that is unknown or cannot be read.
inline bool read_options(boost::program_options::options_description known, int argc, char** argv) {
  namespace po = boost::program_options;
  known.add_options()("help", "this text");
  po::variables_map given;
  po::store(po::parse_command_line(argc, argv, known), given);
  po::notify(given);
  if (given.count("help") == 0) return true;
  std::cout << known;
  return false;
}

/// An option whose variable holds its default.
struct SizeOption {
  const char* name;
  Index* target;
  const char* text;
};
inline void add_sizes(boost::program_options::options_description& known,
                      std::initializer_list<SizeOption> sizes) {
  namespace po = boost::program_options;
  for (const SizeOption& size : sizes)
    known.add_options()(size.name, po::value(size.target)->default_value(*size.target), size.text);
}

/// --samples and --json, of a benchmark that prints rows.
inline void add_row_options(boost::program_options::options_description& known, int& samples,
                            const char* samples_text, std::string& json) {
  namespace po = boost::program_options;
  known.add_options()("samples", po::value(&samples)->default_value(samples), samples_text)(
      "json", po::value(&json), "also write the rows to this file");
}

/// The whole of a benchmark's main() that needs no ranks: parse() gives options, or none if there is nothing
/// to run.
template <typename Parse, typename Run>
int run_main(const char* name, int argc, char** argv, Parse parse, Run run) try {
  if (const auto options = parse(argc, argv)) run(*options);
  return 0;
} catch (const std::exception& error) {
  std::cerr << name << ": " << error.what() << '\n';
  return 1;
}

/// "a,b" -> a, b.
inline std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all;
  std::istringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) all.push_back(word);
  return all;
}

/// Throws for a word that is neither on nor off.
inline bool is_on(const std::string& option, const std::string& word) {
  if (word == "on" || word == "off") return word == "on";
  throw std::invalid_argument(option + " \"" + word + "\" is not valid; valid: off, on");
}

}  // namespace moeloom::bench
