// A report: large numbers, sections of tables, what is drawn, and the one page that shows it all.
//
// Tables are HTML. What is drawn is JSON, whose fields the page's scripts know (src/report/*.js); a reader
// without scripts has the tables.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/document.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// Plain text, escaped by the page.
struct Table {
  std::vector<std::string> heading = {};  // empty: none
  std::vector<std::vector<std::string>> rows = {};
  std::string css_class = {};  // of page.css
  bool last_is_sum = false;
};

/// A question or a prompt, and what follows it.
struct Passage {
  std::string lead, text;
  bool verbatim = false;  // line breaks are kept
};

struct Section {
  std::string title = {};  // empty: it is all drawn, title and note, too
  std::string note = {};
  bool wide = false;
  std::string drawing = {};  // the name of what a script draws here; empty: nothing
  std::vector<Passage> passages = {};
  Table table = {};

  bool is_empty() const { return drawing.empty() && passages.empty() && table.rows.empty(); }
};

/// A large number and what it is.
struct Card {
  std::string value, what;
};

struct Report {
  std::string title;
  std::string status = {};   // a line below the title
  bool has_ended = true;     // the run: the page is its last
  Index reload_seconds = 0;  // > 0: after so long the page loads itself again
  std::vector<Card> cards = {};
  std::vector<Section> sections = {};  // empty ones are left out
  Document drawn = {};
};

/// What draws the lines: dygraphs.
struct PageLibrary {
  std::string script, style;  // empty: it is not there, and the page says so
};
/// Of Debian's libjs-dygraphs on this machine, if it is installed.
PageLibrary installed_library();

/// A whole document that needs no other file and no network.
std::string page_html(const Report& report, const PageLibrary& library = installed_library());

inline constexpr std::size_t kPageBeginning = 200;
/// Whether a page is that of a run that has not ended; its beginning is enough.
bool shows_running(std::string_view page);

}  // namespace moeloom
