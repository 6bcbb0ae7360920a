#include "report/report_page.hpp"

#include "report/html.hpp"

#include "report_style.hpp"

namespace moeloom {

std::string report_page(const std::string& title, const std::string& head, const std::string& sections) {
  const std::string escaped = html_escaped(title);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
         escaped + "</title>\n<style>" + kReportStyle + "</style>\n</head>\n<body>\n<main>\n<h1>" + escaped +
         "</h1>\n" + head + "<div class=\"grid\">\n" + sections + "</div>\n</main>\n</body>\n</html>\n";
}

std::string report_section(const std::string& title, const std::string& note, const std::string& content,
                           const std::string& css_class) {
  if (content.empty()) return "";
  return "<section" + (css_class.empty() ? "" : " class=\"" + css_class + "\"") + "><h2>" +
         html_escaped(title) + "</h2>" +
         (note.empty() ? "" : "<p class=\"note\">" + html_escaped(note) + "</p>") + content + "</section>\n";
}

std::string number_card(const std::string& value, const std::string& what, bool first) {
  return std::string("<div") + (first ? " class=\"first\"" : "") + "><b>" + value + "</b><span>" +
         html_escaped(what) + "</span></div>";
}

std::string facts_table(const std::vector<std::pair<std::string, std::string>>& facts) {
  if (facts.empty()) return "";
  std::string html = "<table class=\"facts\">";
  for (const auto& [name, value] : facts)
    html += "<tr><td>" + html_escaped(name) + "</td><td>" + html_escaped(value) + "</td></tr>";
  return html + "</table>";
}

}  // namespace moeloom
