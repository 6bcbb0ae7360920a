#include "report/page.hpp"

#include "report/html.hpp"

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;

constexpr const char* kAttack = "</script><script>alert(\"x\") & 'y'</script>";

/// Every text of it is this one.
Report report_with(const std::string& text) {
  Report report{.title = text, .status = text, .cards = {{text, text}}};
  report.drawn.set("runs", std::vector<std::string>{text});
  report.sections = {
      {.title = text, .note = text, .drawing = "maps"},
      {.drawing = "lines"},
      {.title = "empty", .note = "nothing"},
      {.title = "text", .passages = {{text, text}, {text, text, true}}},
      {.title = "table",
       .table = {.heading = {text}, .rows = {{text}}, .css_class = "points", .last_is_sum = true}}};
  return report;
}

TEST(Page, IsWholeAndLeavesOutWhatIsEmpty) {
  std::string html = page_html(report_with("plain"), {});
  EXPECT_TRUE(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
  html.resize(html.find("<script"));
  EXPECT_EQ(count_of(html, "<section"), 3u);
  EXPECT_EQ(count_of(html, "<div id=\"maps\"></div></section>"), 1u);
  EXPECT_EQ(count_of(html, "<div id=\"lines\"></div>\n"), 1u) << "its sections are the script's";
  EXPECT_EQ(count_of(html, "<tr class=\"sum\"><td>plain</td></tr>"), 1u);
  for (const std::string element : {"section", "div", "p", "table", "title", "span", "td", "th", "tr", "pre"})
    EXPECT_EQ(count_of(html, "</" + element + ">"),
              count_of(html, "<" + element + ">") + count_of(html, "<" + element + " "))
        << element;
}

TEST(Page, EscapesEverythingThatAPersonOrAModelWrote) {
  const std::string plain = page_html(report_with("plain"), {});
  const std::string html = page_html(report_with(kAttack), {});
  EXPECT_EQ(count_of(html, "<script"), count_of(plain, "<script"));
  EXPECT_EQ(count_of(html, "</script"), count_of(plain, "</script"));
  EXPECT_EQ(count_of(html, "<script>alert"), 0u);
  EXPECT_EQ(count_of(html, "\\u003c/script>\\u003cscript>alert(\\\"x\\\")"), 1u) << "in the data";
  EXPECT_GT(count_of(html, "&lt;script&gt;alert(&quot;x&quot;) &amp; &#39;y&#39;"), 9u) << "in the tables";
}

TEST(Page, LooksIntoNoPart) {
  const std::string html = page_html(report_with("{{data}} {{none}}"), {"var a = '{{title}}'", "{{style}}"});
  EXPECT_EQ(count_of(html, "<h1>{{data}} {{none}}</h1>"), 1u);
  EXPECT_EQ(count_of(html, "var a = '{{title}}'"), 1u);
}

TEST(Page, NeedsNoOtherFileAndNoNetwork) {
  const std::string html = page_html(report_with("plain"), {});
  EXPECT_EQ(count_of(html, "content=\"default-src 'none'"), 1u) << "the browser would refuse it";
  for (const char* outside : {"http://", "https://", "<link", "@import", "url(", "src="})
    EXPECT_EQ(count_of(html, outside), 0u) << outside;
}

TEST(Page, SaysThatLinesHaveNoLibraryWhereThereAreLines) {
  Report report = report_with("plain");
  EXPECT_EQ(count_of(page_html(report, {}), "install libjs-dygraphs"), 1u);
  EXPECT_EQ(count_of(page_html(report, {"function Dygraph() {}", ""}), "install libjs-dygraphs"), 0u);
  report.drawn.erase("runs");
  EXPECT_EQ(count_of(page_html(report, {}), "install libjs-dygraphs"), 0u);
}

TEST(Page, LoadsItselfAgainWhileItsRunGoesOn) {
  Report report = report_with("plain");
  const std::string last = page_html(report, {});
  EXPECT_FALSE(shows_running(last));
  EXPECT_EQ(count_of(last, "http-equiv=\"refresh\""), 0u);
  EXPECT_EQ(count_of(last, "\"reload_seconds\":0}"), 1u);
  report.has_ended = false;
  EXPECT_TRUE(shows_running(page_html(report, {})));
  report.reload_seconds = 30;
  const std::string going_on = page_html(report, {});
  EXPECT_TRUE(shows_running(going_on.substr(0, kPageBeginning)));
  EXPECT_EQ(count_of(going_on, "<noscript><meta http-equiv=\"refresh\" content=\"30\"></noscript>"), 1u);
  EXPECT_EQ(count_of(going_on, "\"reload_seconds\":30}"), 1u);
  report.title = "data-run=\"goes on\"";
  report.has_ended = true;
  EXPECT_FALSE(shows_running(page_html(report, {}))) << "a title is no state";
}

TEST(Html, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(html_escaped("caf\xC3\xA9 \xFF\xC3 \xED\xA0\x80 \x01 end"),
            "caf\xC3\xA9 &#xFFFD;&#xFFFD; &#xFFFD;&#xFFFD;&#xFFFD; &#xFFFD; end");
}

}  // namespace
}  // namespace moeloom
