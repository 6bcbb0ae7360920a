#include "report/report_page.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ReportPage, IsOneDocumentWithItsStyle) {
  const std::string html = report_page("a < b", "<p>head</p>\n", report_section("one", "", "<p>1</p>"));
  EXPECT_TRUE(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
  for (const char* part : {"<title>a &lt; b</title>", "<h1>a &lt; b</h1>\n<p>head</p>\n", "<style>\n:root",
                           "<section><h2>one</h2><p>1</p></section>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

TEST(ReportPage, ASectionWithoutContentIsLeftOut) {
  EXPECT_EQ(report_section("title", "note", ""), "");
  EXPECT_EQ(report_section("<t>", "<n>", "<p></p>", "wide"),
            "<section class=\"wide\"><h2>&lt;t&gt;</h2><p class=\"note\">&lt;n&gt;</p><p></p></section>\n");
}

TEST(ReportPage, FactsAndNumbersAreEscaped) {
  EXPECT_EQ(facts_table({}), "");
  EXPECT_EQ(facts_table({{"<a>", "&"}}),
            "<table class=\"facts\"><tr><td>&lt;a&gt;</td><td>&amp;</td></tr></table>");
  EXPECT_EQ(number_card("1", "<what>", true), "<div class=\"first\"><b>1</b><span>&lt;what&gt;</span></div>");
}

}  // namespace
}  // namespace moeloom
