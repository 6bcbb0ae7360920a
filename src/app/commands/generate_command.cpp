#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <iostream>
#include <sstream>

#include "commands/ask_request.hpp"
#include "commands/commands.hpp"
#include "fields/option_values.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::vector<std::string> lines;
  std::istringstream text(read_text_file(file));
  for (std::string line; std::getline(text, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty()) throw ConfigError({file.string() + " holds no prompt; write one a line"});
  return lines;
}

void show(const std::string& part) {
  std::cout << printable(part) << std::flush;
}

/// An object a line.
void show_answer(const Answer& answer) {
  Document line;
  line.set("prompt", answer.prompt);
  line.set("text", answer.text);
  line.set("tokens", answer.tokens);
  std::cout << line.dump(-1) << '\n' << std::flush;
}

}  // namespace

int generate_command(int argc, char** argv) {
  Violations violations;
  const auto options = agree_on_options(argc, argv, parse_generate_options, violations);
  const auto& [ask, prompt, prompt_ids, prompts, settings] = options;
  std::vector<std::string> lines;
  if (!prompts.empty()) violations.attempt([&] { lines = lines_of(prompts); });
  ProgramLog log{LogSettings()};
  Asking model = asked_model(ask, violations, log, [&] {
    if (prompts.empty()) show(prompt_ids.empty() ? prompt : value_text(prompt_ids));
  });
  if (!prompts.empty()) {
    model.generate_all(lines, settings, show_answer);
    return 0;
  }
  if (prompt_ids.empty())
    model.generate(prompt, settings, show);
  else
    model.generate_ids(prompt_ids, settings, [](Index id) { show("," + std::to_string(id)); });
  if (speaks()) std::cout << '\n';
  return 0;
}

}  // namespace moeloom
