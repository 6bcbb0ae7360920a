#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utf8proc.h>
#include <utility>

namespace moeloom::tokenizing {
namespace {

bool is_of(char32_t code_point, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category >= first && category <= last;
}

using CodePoints = std::pair<char32_t, char32_t>;  // the first and the last

// Code points that joined Unicode after 9.0, the reference's tables, and before 15.1 with a combining class
// or a decomposition (from perl's Unicode::Normalize and \p{In=9.0}). Normal forms of older ones never
// change.
constexpr CodePoints kYounger[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9}};

// Of category P* since Unicode 8.0, the reference's table of punctuation (from perl's \p{In=8.0}).
constexpr CodePoints kYoungerPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71},
    {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};

/// `sorted` ranges.
bool lies_in(std::span<const CodePoints> sorted, char32_t code_point) {
  const auto after = std::ranges::upper_bound(sorted, code_point, {}, &CodePoints::first);
  return after != sorted.begin() && code_point <= std::prev(after)->second;
}

bool is_younger(char32_t code_point) {
  return lies_in(kYounger, code_point);
}

int combining_class(char32_t code_point) {
  if (is_younger(code_point)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class;
}

std::optional<char32_t> composed(char32_t first, char32_t second) {
  std::array<utf8proc_int32_t, 2> pair{static_cast<utf8proc_int32_t>(first),
                                       static_cast<utf8proc_int32_t>(second)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (utf8proc_normalize_utf32(pair.data(), 2, options) != 1) return std::nullopt;
  if (is_younger(static_cast<char32_t>(pair[0]))) return std::nullopt;
  return static_cast<char32_t>(pair[0]);
}

/// Decomposed fully, marks in canonical order.
std::vector<Change> decomposed(std::string_view text, bool compatibly) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibly ? UTF8PROC_COMPAT : 0));
  constexpr std::size_t kLongest = 32;  // U+FDFA has 18
  std::array<utf8proc_int32_t, kLongest> parts{};
  std::vector<Change> changes;
  changes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto code_point = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    if (is_younger(static_cast<char32_t>(code_point))) {
      changes.push_back({static_cast<char32_t>(code_point), 0});
      continue;
    }
    int boundary = 0;
    const auto count = utf8proc_decompose_char(code_point, parts.data(), kLongest, options, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      changes.push_back({static_cast<char32_t>(parts[static_cast<std::size_t>(i)]), i == 0 ? 0 : 1});
  }
  const auto is_starter = [](const Change& each) { return combining_class(each.code_point) == 0; };
  for (auto begin = changes.begin(); begin != changes.end();) {
    begin = std::find_if_not(begin, changes.end(), is_starter);
    const auto end = std::find_if(begin, changes.end(), is_starter);
    std::stable_sort(begin, end, [](const Change& a, const Change& b) {
      return combining_class(a.code_point) < combining_class(b.code_point);
    });
    begin = end;
  }
  return changes;
}

/// The canonical composition algorithm (Unicode Standard, 3.11, D117).
std::vector<Change> recomposed(const std::vector<Change>& changes) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<Change> result;
  result.reserve(changes.size());
  std::size_t starter = kNone;
  int last_class = 0;  // of what stands between the starter and here; 0: nothing does
  for (const Change& each : changes) {
    const int its_class = combining_class(each.code_point);
    if (starter != kNone && (last_class == 0 || last_class < its_class))
      if (const auto both = composed(result[starter].code_point, each.code_point)) {
        result[starter] = {*both, result[starter].change + each.change - 1};
        continue;
      }
    if (its_class == 0) starter = result.size();
    last_class = its_class;
    result.push_back(each);
  }
  return result;
}

}  // namespace

bool is_mark(char32_t code_point) {
  return is_of(code_point, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_number(char32_t code_point) {
  return is_of(code_point, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t code_point) {
  if (code_point < 0x80)
    return code_point > ' ' && code_point < 0x7F && !(code_point >= '0' && code_point <= '9') &&
           !((code_point | 0x20) >= 'a' && (code_point | 0x20) <= 'z');
  return is_of(code_point, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) &&
         !lies_in(kYoungerPunctuation, code_point);
}

std::vector<char32_t> lower_case(char32_t code_point) {
  constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;  // the one that grows (SpecialCasing.txt)
  if (code_point == kDottedI) return {'i', kDotAbove};
  return {static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)))};
}

bool ends_cluster(char32_t before, char32_t after, int& state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                          static_cast<utf8proc_int32_t>(after), &state);
}

char32_t first_that_may_change(NormalForm form) {
  if (form == NormalForm::kNfc) return 0x300;
  return form == NormalForm::kNfd ? 0xC0 : 0xA0;
}

std::vector<Change> in_normal_form(std::string_view text, NormalForm form) {
  std::vector<Change> changes = decomposed(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd);
  if (form == NormalForm::kNfd || form == NormalForm::kNfkd) return changes;
  return recomposed(changes);
}

}  // namespace moeloom::tokenizing
