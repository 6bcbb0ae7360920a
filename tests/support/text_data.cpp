#include "text_data.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cstdlib>

#include "golden.hpp"

namespace moeloom::testing {

namespace fs = std::filesystem;

fs::path text_root() {
  const auto holds_data = [](const fs::path& folder) { return fs::is_directory(folder / "templates"); };
  if (const char* named = std::getenv("MOELOOM_TEXT"); named != nullptr && *named != '\0') {
    if (holds_data(named)) return named;
    throw IoError(std::string("MOELOOM_TEXT=") + named + ": expected a folder with templates");
  }
  const fs::path beside = source_root() / ".." / "shared" / "text";
  if (holds_data(beside)) return beside.lexically_normal();
  const fs::path bundled = source_root() / "tests" / "data" / "text";
  if (holds_data(bundled)) return bundled;
  throw IoError("expected text data in " + beside.string() + " or " + bundled.string() +
                ", found none; set MOELOOM_TEXT");
}

std::vector<fs::path> template_folders() {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(text_root() / "templates")) {
    if (!entry.is_directory() || entry.path().filename() == "_corners") continue;
    const bool has_template =
        fs::exists(entry.path() / "template.jinja") || fs::exists(entry.path() / "tokenizer_config.json");
    if (!has_template || !fs::exists(entry.path() / "cases.jsonl"))
      throw IoError(entry.path().string() + ": expected a template and cases.jsonl");
    folders.push_back(entry.path());
  }
  if (folders.empty())
    throw IoError((text_root() / "templates").string() + ": expected folders of templates");
  std::ranges::sort(folders);
  return folders;
}

std::vector<JsonValue> json_lines(const fs::path& path) {
  const std::string text = read_text_file(path);
  std::vector<JsonValue> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin)
      lines.push_back(parse_json_value(std::string_view(text).substr(begin, end - begin),
                                       path.string() + ":" + std::to_string(lines.size() + 1)));
    begin = end + 1;
  }
  if (lines.empty()) throw IoError(path.string() + ": expected at least one line");
  return lines;
}

}  // namespace moeloom::testing
