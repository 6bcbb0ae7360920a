// tokenizer.json, what lies beside it, and a text: whatever they hold, ids that the vocabulary has and text
// that is UTF-8.
#include "moeloom/base/errors.hpp"
#include "moeloom/text/tokenizer.hpp"
#include "text/chat_model.hpp"
#include "text/token_stream.hpp"
#include "text/tokenizer/regex.hpp"

#include <algorithm>
#include <array>

#include "fuzz/json_words.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"

namespace moeloom::fuzz {
namespace {

void check_offsets(const Encoding& encoding, std::string_view text) {
  expect(encoding.offsets.size() == encoding.ids.size(), "an id has no offsets");
  for (const ByteRange& each : encoding.offsets)
    expect(each.begin <= each.end && each.end <= text.size(), "an offset lies beyond the text");
}

/// A tokenizer.json, a byte 0xFF (which no JSON has), the text.
void run_tokenizer(std::string_view input) {
  const std::size_t cut = std::min(input.find('\xff'), input.size());
  const Tokenizer tokenizer = Tokenizer::parse(input.substr(0, cut), "input");
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  const std::vector<std::uint32_t> ids = tokenizer.encode(text, false);
  for (const std::uint32_t id : ids)
    expect(id < tokenizer.vocabulary_size(), "an id is beyond the vocabulary");
  expect(tokenizer.encode(text, false) == ids, "a text has other ids the second time");
  const Encoding encoding = tokenizer.encode_with_offsets(text, false);
  expect(encoding.ids == ids, "a text has other ids with offsets");
  check_offsets(encoding, text);
  check_offsets(tokenizer.encode_with_offsets(text, true), text);
  const std::string decoded = tokenizer.decode(ids, false);
  expect(valid_utf8(decoded) == decoded, "ids are decoded to what is no UTF-8");
  TokenStream stream(tokenizer, true);
  for (std::size_t i = 0; i < std::min<std::size_t>(ids.size(), 100); ++i) stream.next(ids[i]);
  stream.finish();
}

constexpr const char* kText = "\xff Hello  <s> w\u00f6rld e\u0301 \u2581 1234\n\t\u4f60\u597d \U0001F600";

std::string seed(const std::string& normalizer, const std::string& pre_tokenizer, const std::string& model,
                 const std::string& post_processor, const std::string& decoder) {
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
    {"id": 9, "content": "<s>", "single_word": false, "lstrip": true, "rstrip": true, "normalized": false, "special": true},
    {"id": 10, "content": "world", "single_word": true, "lstrip": false, "rstrip": false, "normalized": true, "special": false}],
    "normalizer": )" +
         normalizer + R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor +
         R"(, "decoder": )" + decoder + R"(, "model": )" + model + "}" + kText;
}

std::vector<std::string> tokenizer_seeds() {
  const std::string bytes = R"({"type": "BPE", "dropout": null, "unk_token": null, "ignore_merges": true,
    "vocab": {"H": 0, "e": 1, "l": 2, "o": 3, "ll": 4, "\u0120": 5, "ello": 6, "el": 7, "lo": 8}, "merges": ["l l", ["e", "l"], "l o"]})";
  const std::string characters =
      R"({"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
    "vocab": {"<unk>": 0, "l": 1, "\u2581": 2, "<0xC3>": 3, "<0xB6>": 4, "ll": 5, "\u2581l": 6}, "merges": ["l l", "\u2581 l"]})";
  const std::string unigram = R"({"type": "Unigram", "unk_id": 0, "byte_fallback": true,
    "vocab": [["<unk>", 0.0], ["\u2581", -2.5], ["l", -3], ["ll", -4.5], ["o", -1e-3], ["\u2581He", -5]]})";
  return {
      seed(
          R"({"type": "NFC"})",
          R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": " ?\\p{L}+|\\s+(?!\\S)|\\s+"},
             "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}]})",
          bytes, R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": true})",
          R"({"type": "ByteLevel"})"),
      seed(
          R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
             {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})",
          "null", characters,
          R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A",
             "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}}})",
          R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
             {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"),
      seed(
          R"({"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKD"}, {"type": "StripAccents"},
             {"type": "Lowercase"}, {"type": "Strip", "strip_left": true, "strip_right": false},
             {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
             {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAAAAAAAAAAYQA="}]})",
          R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": true},
             {"type": "Punctuation", "behavior": "MergedWithNext"}, {"type": "Whitespace"},
             {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}]})",
          unigram,
          R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 9], "trim_offsets": true})",
          R"({"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"})")};
}

// ---- the files beside it ---------------------------------------------------------------------------------

constexpr std::array kBeside = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const Encoding encoding = tokenizer.encode_with_offsets(text, true);
  check_offsets(encoding, text);
  for (const std::uint32_t id : encoding.ids)
    expect(id < tokenizer.vocabulary_size(), "an id is beyond the vocabulary");
  const std::string decoded = tokenizer.decode(encoding.ids, true);
  expect(valid_utf8(decoded) == decoded, "ids are decoded to what is no UTF-8");
}

/// The files of kBeside, absent where they are empty, and a text, a byte 0xFF between two.
void run_tokenizer_folder(std::string_view input) {
  static MemoryFolder folder;
  const std::string usual = tokenizer_seeds().front();
  folder.hold("tokenizer.json", usual.substr(0, usual.find('\xff')));
  for (const char* name : kBeside) {
    const std::size_t cut = std::min(input.find('\xff'), input.size());
    if (cut > 0)
      folder.hold(name, input.substr(0, cut));
    else
      folder.remove(name);
    input.remove_prefix(std::min(cut + 1, input.size()));
  }
  std::optional<ChatModel> chat;
  try_it([&] { chat = ChatModel::load(folder.path()); });
  const Tokenizer tokenizer = Tokenizer::of_folder(folder.path());
  check_text(tokenizer, input);
  const std::vector<std::uint32_t> any = {0, 9, 8, 11, 12, 1U << 31, ~0U};
  const std::string decoded = tokenizer.decode(any, false);
  expect(valid_utf8(decoded) == decoded, "ids are decoded to what is no UTF-8");
  if (!chat) return;
  chat->variables(tokenizer);
  chat->special_token("eos_token");
  chat->chat_template(true);
}

std::vector<std::string> tokenizer_folder_seeds() {
  return {
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": true}, "add_bos_token": true,
    "add_eos_token": true, "added_tokens_decoder": {"11": {"content": "</s>", "special": true, "rstrip": true},
    "9": {"content": "<s>", "single_word": true, "normalized": true}}, "extra_special_tokens": {"a_token": "<a>"},
    "chat_template": "{{ bos_token }}"})"
      "\xff\xff\xffHello <s> lol</s><a>",
      R"({"add_prefix_space": true, "chat_template": [{"name": "tool_use", "template": "{{ 1 }}"}]})"
      "\xff"
      R"({"eos_token": "<e>", "additional_special_tokens": ["<x>", {"content": "<y>"}], "pad_token": null})"
      "\xff"
      R"({"<e>": 11, "<x>": 12})"
      "\xff <e>ello<x><y>"};
}

// ---- regular expressions ---------------------------------------------------------------------------------

/// A pattern, a byte 0xFF, the text that is searched.
void run_regex(std::string_view input) {
  const std::size_t cut = std::min(input.find('\xff'), input.size());
  const tokenizing::Regex regex(std::string(input.substr(0, cut)), "input");
  const std::string text = valid_utf8(input.substr(std::min(cut + 1, input.size())));
  const tokenizing::RegexSpace space;
  for (std::size_t from = 0, found = 0; from <= text.size() && found < 20; ++found) {
    const auto match = regex.search(text, from, space);
    if (!match) break;
    expect(from <= match->begin && match->begin <= match->end && match->end <= text.size(),
           "a match lies elsewhere");
    from = match->end;
    if (match->begin != match->end) continue;
    if (from == text.size()) break;
    next_code_point(text, from);
  }
}

std::vector<std::string> regex_seeds() {
  const std::string text = "\xff it's 123 words,\n\n\twith \u00e9 \u4f60  ";
  return {R"('s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)" + text,
          R"((?i:'s|'re)|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+|\p{N}{1,3})" + text,
          R"((a+)+$|(?<=x)y|\bw\w*\b|(?<n>.)\k<n>)" + text, "(?:a{0,100}){0,100}" + text,
          "[[:alpha:]&&[^a-c]]++" + text};
}

}  // namespace

std::vector<Target> tokenizer_targets() {
  return {
      {"tokenizer",
       run_tokenizer,
       tokenizer_seeds,
       {"\"type\"",
        "\"BPE\"",
        "\"Unigram\"",
        "\"vocab\"",
        "\"merges\"",
        "\"added_tokens\"",
        "\"normalizer\"",
        "\"pre_tokenizer\"",
        "\"post_processor\"",
        "\"decoder\"",
        "\"Regex\"",
        "\"String\"",
        "\"Sequence\"",
        "\"ByteLevel\"",
        "\"Metaspace\"",
        "\"Split\"",
        "\"NFKC\"",
        "\"byte_fallback\"",
        "\"<0x0A>\"",
        "\"\"",
        "null",
        "true",
        "false",
        "\\\\p{L}",
        "(?!\\\\S)",
        "{1,3}",
        "\u2581",
        "\u0120",
        "e\u0301",
        "\xff",
        "\xf0\x9f"}},
      {"tokenizer_folder", run_tokenizer_folder, tokenizer_folder_seeds,
       with_json({"\"content\"", "\"special\"", "\"lstrip\"", "\"normalized\"", "\"bos_token\"",
                  "\"eos_token\"", "\"added_tokens_decoder\"", "\"extra_special_tokens\"",
                  "\"chat_template\"", "\"add_bos_token\"", "\"add_eos_token\"", "\"4294967295\"", "<s>",
                  "</s>", "ello"})},
      {"regex", run_regex, regex_seeds, {"\\p{L}", "\\s",         "\\S",    "\\b",  "\\k<n>", "(?<n>", "(?!",
                                         "(?<=",   "(?i:",        "(?>",    "|",    "+",      "*?",    "++",
                                         "{1,3}",  "{0,100000}",  "{100}",  "[^",   "&&",     "]",     ")",
                                         "\\1",    "\\x{10FFFF}", "\\g<0>", "\xff", "a"}}};
}

}  // namespace moeloom::fuzz
