// write_seeds FOLDER: FOLDER/TARGET/seed-N, the corpus that libFuzzer starts from, and FOLDER/TARGET.dict.
#include <filesystem>
#include <iostream>

#include "fuzz/target.hpp"
#include "support/files.hpp"

namespace {

/// As libFuzzer reads it: quotes, backslashes and what is not printed by number.
std::string entry(const std::string& word) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text = "\"";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 127 && c != '"' && c != '\\')
      text += c;
    else
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text + "\"\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("write_seeds FOLDER");
  const std::filesystem::path folder = argv[1];
  for (const moeloom::fuzz::Target& target : moeloom::fuzz::targets()) {
    std::filesystem::create_directories(folder / target.name);
    int number = 0;
    for (const std::string& seed : target.seeds())
      moeloom::testing::write_bytes(folder / target.name / ("seed-" + std::to_string(number++)), seed);
    std::string dictionary;
    for (const std::string& word : target.words) dictionary += entry(word);
    moeloom::testing::write_bytes(folder / (target.name + std::string(".dict")), dictionary);
    std::cout << target.name << '\n';
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
