#include "report/page.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "report/html.hpp"

#include <filesystem>
#include <map>

#include "page_parts.hpp"

namespace moeloom {
namespace {

constexpr const char* kLibrary = "/usr/share/javascript/dygraphs";
constexpr std::string_view kGoesOn = "data-run=\"goes on\"";

std::string element(const std::string& name, const std::string& text, const std::string& css_class = "") {
  const std::string with = css_class.empty() ? "" : " class=\"" + html_escaped(css_class) + "\"";
  return "<" + name + with + ">" + html_escaped(text) + "</" + name + ">";
}

std::string row_html(const std::vector<std::string>& cells, const std::string& cell) {
  std::string html;
  for (const std::string& text : cells) html += element(cell, text);
  return html + "</tr>";
}

std::string table_html(const Table& table) {
  if (table.rows.empty()) return "";
  std::string html = "<div class=\"scroll\"><table class=\"" + html_escaped(table.css_class) + "\">";
  if (!table.heading.empty()) html += "<thead><tr>" + row_html(table.heading, "th") + "</thead>";
  for (const auto& row : table.rows)
    html += (table.last_is_sum && &row == &table.rows.back() ? "<tr class=\"sum\">" : "<tr>") +
            row_html(row, "td");
  return html + "</table></div>";
}

std::string passage_html(const Passage& passage) {
  const std::string lead = passage.lead.empty() ? "" : element("b", passage.lead);
  if (passage.verbatim) return "<pre>" + lead + html_escaped(passage.text) + "</pre>";
  return "<p>" + lead + " " + html_escaped(passage.text) + "</p>";
}

std::string section_html(const Section& section) {
  if (section.is_empty()) return "";
  const std::string place =
      section.drawing.empty() ? "" : "<div id=\"" + html_escaped(section.drawing) + "\"></div>";
  if (section.title.empty()) return place + "\n";
  std::string html = std::string("<section") + (section.wide ? " class=\"wide\"" : "") + ">" +
                     element("h2", section.title) +
                     (section.note.empty() ? "" : element("p", section.note, "note")) + place;
  for (const Passage& passage : section.passages) html += passage_html(passage);
  return html + table_html(section.table) + "</section>\n";
}

std::string head_html(const Report& report, const PageLibrary& library) {
  std::string html;
  if (!report.status.empty()) html += element("p", report.status, "status");
  if (report.drawn.has("runs") && library.script.empty())
    html += element("p",
                    std::string("Lines are left out, because ") + kLibrary +
                        " was not there when this page was written: install libjs-dygraphs, and write it "
                        "again by moeloom report.",
                    "status");
  if (report.cards.empty()) return html;
  html += "<div class=\"cards\">";
  for (const Card& card : report.cards)
    html += "<div>" + element("b", card.value) + element("span", card.what) + "</div>";
  return html + "</div>\n";
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// Nothing in it ends the element that it stands in: in JSON a < can only be in a text.
std::string json_of(const Report& report) {
  Document data = report.drawn;
  data.set("reload_seconds", report.reload_seconds);
  return replaced(data.dump(-1), "<", "\\u003c");
}

/// In one pass, so that no part is looked into.
std::string filled(std::string_view form, const std::map<std::string_view, std::string>& parts) {
  std::string text;
  for (std::size_t at = 0;;) {
    const std::size_t open = form.find("{{", at);
    text += form.substr(at, open - at);
    if (open == std::string_view::npos) return text;
    const std::size_t close = form.find("}}", open);
    text += parts.at(form.substr(open + 2, close - open - 2));
    at = close + 2;
  }
}

/// For a reader without scripts; with them the page's own waits for a quiet moment.
std::string reload_html(Index seconds) {
  if (seconds == 0) return "";
  return "<noscript><meta http-equiv=\"refresh\" content=\"" + std::to_string(seconds) + "\"></noscript>\n";
}

}  // namespace

PageLibrary installed_library() try {
  const std::filesystem::path folder = kLibrary;
  return {replaced(read_text_file(folder / "dygraph.min.js"), "</script", "<\\/script"),
          read_text_file(folder / "dygraph.min.css")};
} catch (const IoError&) {
  return {};
}

std::string page_html(const Report& report, const PageLibrary& library) {
  std::string sections;
  for (const Section& section : report.sections) sections += section_html(section);
  return filled(kPageTemplate, {{"state", report.has_ended ? "ended" : "goes on"},
                                {"reload", reload_html(report.reload_seconds)},
                                {"title", html_escaped(report.title)},
                                {"library_style", library.style},
                                {"style", std::string(kPageStyle)},
                                {"head", head_html(report, library)},
                                {"sections", sections},
                                {"data", json_of(report)},
                                {"library", library.script},
                                {"script", std::string(kPageScript)}});
}

bool shows_running(std::string_view page) {
  return page.substr(0, kPageBeginning).find(kGoesOn) != std::string_view::npos;
}

}  // namespace moeloom
