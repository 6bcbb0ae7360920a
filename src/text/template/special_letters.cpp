#include "special_letters.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace moeloom::jinja {
namespace {

struct Several {
  char32_t letter;
  std::u32string_view upper;
  std::u32string_view title;  // empty: one letter
};

// SpecialCasing.txt of Unicode 14, the lines without a condition, but for U+1F80 to U+1FAF.
constexpr Several kSeveral[] = {{0xDF, U"\u0053\u0053", U"\u0053\u0073"},
                                {0x149, U"\u02BC\u004E", U"\u02BC\u004E"},
                                {0x1F0, U"\u004A\u030C", U"\u004A\u030C"},
                                {0x390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
                                {0x3B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
                                {0x587, U"\u0535\u0552", U"\u0535\u0582"},
                                {0x1E96, U"\u0048\u0331", U"\u0048\u0331"},
                                {0x1E97, U"\u0054\u0308", U"\u0054\u0308"},
                                {0x1E98, U"\u0057\u030A", U"\u0057\u030A"},
                                {0x1E99, U"\u0059\u030A", U"\u0059\u030A"},
                                {0x1E9A, U"\u0041\u02BE", U"\u0041\u02BE"},
                                {0x1F50, U"\u03A5\u0313", U"\u03A5\u0313"},
                                {0x1F52, U"\u03A5\u0313\u0300", U"\u03A5\u0313\u0300"},
                                {0x1F54, U"\u03A5\u0313\u0301", U"\u03A5\u0313\u0301"},
                                {0x1F56, U"\u03A5\u0313\u0342", U"\u03A5\u0313\u0342"},
                                {0x1FB2, U"\u1FBA\u0399", U"\u1FBA\u0345"},
                                {0x1FB3, U"\u0391\u0399", U""},
                                {0x1FB4, U"\u0386\u0399", U"\u0386\u0345"},
                                {0x1FB6, U"\u0391\u0342", U"\u0391\u0342"},
                                {0x1FB7, U"\u0391\u0342\u0399", U"\u0391\u0342\u0345"},
                                {0x1FBC, U"\u0391\u0399", U""},
                                {0x1FC2, U"\u1FCA\u0399", U"\u1FCA\u0345"},
                                {0x1FC3, U"\u0397\u0399", U""},
                                {0x1FC4, U"\u0389\u0399", U"\u0389\u0345"},
                                {0x1FC6, U"\u0397\u0342", U"\u0397\u0342"},
                                {0x1FC7, U"\u0397\u0342\u0399", U"\u0397\u0342\u0345"},
                                {0x1FCC, U"\u0397\u0399", U""},
                                {0x1FD2, U"\u0399\u0308\u0300", U"\u0399\u0308\u0300"},
                                {0x1FD3, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
                                {0x1FD6, U"\u0399\u0342", U"\u0399\u0342"},
                                {0x1FD7, U"\u0399\u0308\u0342", U"\u0399\u0308\u0342"},
                                {0x1FE2, U"\u03A5\u0308\u0300", U"\u03A5\u0308\u0300"},
                                {0x1FE3, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
                                {0x1FE4, U"\u03A1\u0313", U"\u03A1\u0313"},
                                {0x1FE6, U"\u03A5\u0342", U"\u03A5\u0342"},
                                {0x1FE7, U"\u03A5\u0308\u0342", U"\u03A5\u0308\u0342"},
                                {0x1FF2, U"\u1FFA\u0399", U"\u1FFA\u0345"},
                                {0x1FF3, U"\u03A9\u0399", U""},
                                {0x1FF4, U"\u038F\u0399", U"\u038F\u0345"},
                                {0x1FF6, U"\u03A9\u0342", U"\u03A9\u0342"},
                                {0x1FF7, U"\u03A9\u0342\u0399", U"\u03A9\u0342\u0345"},
                                {0x1FFC, U"\u03A9\u0399", U""},
                                {0xFB00, U"\u0046\u0046", U"\u0046\u0066"},
                                {0xFB01, U"\u0046\u0049", U"\u0046\u0069"},
                                {0xFB02, U"\u0046\u004C", U"\u0046\u006C"},
                                {0xFB03, U"\u0046\u0046\u0049", U"\u0046\u0066\u0069"},
                                {0xFB04, U"\u0046\u0046\u004C", U"\u0046\u0066\u006C"},
                                {0xFB05, U"\u0053\u0054", U"\u0053\u0074"},
                                {0xFB06, U"\u0053\u0054", U"\u0053\u0074"},
                                {0xFB13, U"\u0544\u0546", U"\u0544\u0576"},
                                {0xFB14, U"\u0544\u0535", U"\u0544\u0565"},
                                {0xFB15, U"\u0544\u053B", U"\u0544\u056B"},
                                {0xFB16, U"\u054E\u0546", U"\u054E\u0576"},
                                {0xFB17, U"\u0544\u053D", U"\u0544\u056D"}};

struct Range {
  char32_t first, last;
};

// Of UnicodeData.txt and DerivedCoreProperties.txt, Unicode 14.
constexpr Range kOtherDigits[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
constexpr std::u32string_view kNumberIdeographs =
    U"\u3405\u3483\u382A\u3B4D\u4E00\u4E03\u4E07\u4E09\u4E5D\u4E8C\u4E94\u4E96\u4EBF\u4EC0"
    U"\u4EDF\u4EE8\u4F0D\u4F70\u5104\u5146\u5169\u516B\u516D\u5341\u5343\u5344\u5345\u534C"
    U"\u53C1\u53C2\u53C3\u53C4\u56DB\u58F1\u58F9\u5E7A\u5EFE\u5EFF\u5F0C\u5F0D\u5F0E\u5F10"
    U"\u62FE\u634C\u67D2\u6F06\u7396\u767E\u8086\u842C\u8CAE\u8CB3\u8D30\u9621\u9646\u964C"
    U"\u9678\u96F6\uF96B\uF973\uF978\uF9B2\uF9D1\uF9D3\uF9FD\U00020001\U00020064\U000200E2\U00020121"
    U"\U0002092A"
    U"\U00020983\U0002098C\U0002099C\U00020AEA\U00020AFD\U00020B19\U00022390\U00022998\U00023B1B\U0002626D"
    U"\U0002F890";
constexpr Range kNeverInIdentifiers[] = {{0x37A, 0x37A},   {0x2E2F, 0x2E2F}, {0xFC5E, 0xFC63},
                                         {0xFDFA, 0xFDFB}, {0xFE70, 0xFE70}, {0xFE72, 0xFE72},
                                         {0xFE74, 0xFE74}, {0xFE76, 0xFE76}, {0xFE78, 0xFE78},
                                         {0xFE7A, 0xFE7A}, {0xFE7C, 0xFE7C}, {0xFE7E, 0xFE7E}};
constexpr Range kInIdentifiers[] = {{0x1885, 0x1886}, {0x2118, 0x2118}, {0x212E, 0x212E}};
constexpr Range kBehindInIdentifiers[] = {{0xB7, 0xB7},     {0x387, 0x387},   {0xE33, 0xE33},  {0xEB3, 0xEB3},
                                          {0x1369, 0x1371}, {0x19DA, 0x19DA}, {0xFF9E, 0xFF9F}};

bool among(std::span<const Range> ranges, char32_t letter) {
  return std::ranges::any_of(
      ranges, [&](const Range& range) { return range.first <= letter && letter <= range.last; });
}

const Several* several_of(char32_t letter) {
  const auto* found = std::ranges::lower_bound(kSeveral, letter, {}, &Several::letter);
  return found != std::end(kSeveral) && found->letter == letter ? found : nullptr;
}

constexpr char32_t kFirstWithIota = 0x1F80, kLastWithIota = 0x1FAF;

// Greek letters with a iota below, each a capital and a capital iota: eight of a breathing and an accent for
// each of alpha, eta and omega, small and title case.
constexpr auto kWithIota = [] {
  constexpr char32_t kCapitals[] = {0x1F08, 0x1F28, 0x1F68};
  constexpr char32_t kIota = 0x399;
  std::array<std::array<char32_t, 2>, kLastWithIota - kFirstWithIota + 1> letters = {};
  for (std::size_t i = 0; i < letters.size(); ++i)
    letters[i] = {kCapitals[i / 16] + static_cast<char32_t>(i % 8), kIota};
  return letters;
}();

}  // namespace

std::optional<std::u32string_view> several_upper(char32_t letter) {
  if (letter >= kFirstWithIota && letter <= kLastWithIota) {
    const auto& letters = kWithIota[letter - kFirstWithIota];
    return std::u32string_view(letters.data(), letters.size());
  }
  const Several* several = several_of(letter);
  return several == nullptr ? std::nullopt : std::optional(several->upper);
}

std::optional<std::u32string_view> several_title(char32_t letter) {
  const Several* several = several_of(letter);
  return several == nullptr || several->title.empty() ? std::nullopt : std::optional(several->title);
}

bool is_other_digit(char32_t letter) {
  return among(kOtherDigits, letter);
}

bool is_number_ideograph(char32_t letter) {
  return kNumberIdeographs.find(letter) != std::u32string_view::npos;
}

IdentifierRule identifier_rule(char32_t letter) {
  if (among(kNeverInIdentifiers, letter)) return IdentifierRule::kNever;
  if (among(kInIdentifiers, letter)) return IdentifierRule::kAlways;
  return among(kBehindInIdentifiers, letter) ? IdentifierRule::kFollows : IdentifierRule::kCategory;
}

}  // namespace moeloom::jinja
