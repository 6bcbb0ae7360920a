// The page that reports share: one file that needs neither network nor script, and the pieces it is made of.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace moeloom {

/// A whole document: the title, what stands above the grid, and the grid's sections.
std::string report_page(const std::string& title, const std::string& head, const std::string& sections);

/// Left out if `content`, which is HTML, is empty; title and note are escaped.
std::string report_section(const std::string& title, const std::string& note, const std::string& content,
                           const std::string& css_class = "");

/// A large number and what it is; `value` is HTML.
std::string number_card(const std::string& value, const std::string& what, bool first = false);

/// A table of names and values; empty for none.
std::string facts_table(const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace moeloom
