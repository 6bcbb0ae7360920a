// Sections of a report by their titles.
#pragma once

#include "report/page.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace moeloom::testing {

inline std::vector<std::string> titles_of(const std::vector<Section>& sections) {
  std::vector<std::string> titles;
  for (const Section& section : sections)
    if (!section.is_empty()) titles.push_back(section.title);
  return titles;
}

/// That of this title, or else the first whose title begins so; an empty one, and a failure, for none.
inline Section section_in(const std::vector<Section>& sections, const std::string& title) {
  const auto find = [&](const auto& fits) {
    return std::ranges::find_if(
        sections, [&](const Section& section) { return !section.is_empty() && fits(section.title); });
  };
  auto found = find([&](const std::string& other) { return other == title; });
  if (found == sections.end())
    found = find([&](const std::string& other) { return other.starts_with(title); });
  if (found != sections.end()) return *found;
  ADD_FAILURE() << "no section " << title;
  return {};
}

inline bool has_row(const Table& table, const std::vector<std::string>& row) {
  return std::ranges::find(table.rows, row) != table.rows.end();
}

}  // namespace moeloom::testing
