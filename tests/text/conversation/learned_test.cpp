#include "text/learned.hpp"

#include "io/text_file.hpp"

#include <algorithm>
#include <ctime>
#include <map>

#include "support/expect_error.hpp"
#include "support/golden.hpp"
#include "support/sanitized.hpp"
#include "support/text_data.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

std::tm reference_clock() {  // 2026-03-05 07:08:09
  std::tm clock = {};
  clock.tm_year = 126;
  clock.tm_mon = 2;
  clock.tm_mday = 5;
  clock.tm_hour = 7;
  clock.tm_min = 8;
  clock.tm_sec = 9;
  clock.tm_wday = 4;
  clock.tm_yday = 63;
  return clock;
}

std::string source_of(const fs::path& folder) {
  if (fs::exists(folder / "template.jinja")) return read_text_file(folder / "template.jinja");
  const JsonValue config =
      parse_json_value(read_text_file(folder / "tokenizer_config.json"), folder.string());
  return *config.find("chat_template")->text();
}

ChatRequest request_of(const JsonValue& line) {
  ChatRequest request;
  request.messages = *line.find("messages");
  request.tools = *line.find("tools");
  request.add_generation_prompt = *line.find("add_generation_prompt")->boolean();
  request.variables = *line.find("kwargs")->object();
  request.now = reference_clock();
  return request;
}

std::vector<std::uint32_t> ids_of(const JsonValue& line) {
  std::vector<std::uint32_t> ids;
  for (const JsonValue& id : *line.find("ids")->array())
    ids.push_back(static_cast<std::uint32_t>(*id.integer()));
  return ids;
}

std::string digits_of(const std::vector<std::uint8_t>& mask) {
  std::string digits;
  for (const std::uint8_t learned : mask) digits += learned != 0 ? '1' : '0';
  return digits;
}

void check_ids(const fs::path& folder, std::size_t& compared) {
  std::map<std::string, JsonValue> cases;
  for (const JsonValue& line : testing::json_lines(folder / "cases.jsonl"))
    cases[*line.find("name")->text()] = line;
  const ChatTemplate chat_template = ChatTemplate::parse(source_of(folder), folder.filename().string());
  std::map<std::string, Tokenizer> tokenizers;
  for (const JsonValue& line : testing::json_lines(folder / "chat.jsonl")) {
    const std::string& name = *line.find("tokenizer")->text();
    const fs::path file = testing::text_root() / "tokenizers" / name / "tokenizer.json";
    if (!fs::exists(file)) continue;
    if (!tokenizers.contains(name)) tokenizers.emplace(name, Tokenizer::load(file));
    const std::string where = folder.filename().string() + ", " + *line.find("case")->text();
    const RenderedChat chat = chat_template.render(request_of(cases.at(*line.find("case")->text())));
    const Encoding encoding = tokenizers.at(name).encode_with_offsets(chat.text, false);
    EXPECT_EQ(encoding.ids, ids_of(line)) << where;
    const JsonValue* mask = line.find("assistant_mask");
    if (mask != nullptr) {
      EXPECT_EQ(digits_of(mask_of(chat.assistant, encoding.offsets)), *mask->text()) << where;
    }
    ++compared;
  }
}

TEST(Learned, GivesTheIdsAndMasksOfTheReference) {
  std::size_t compared = 0;
  for (const fs::path& folder : testing::template_folders())
    if (fs::exists(folder / "chat.jsonl")) check_ids(folder, compared);
  EXPECT_GT(compared, 0U);
}

Conversation conversation_of(const std::string& line) {
  return parse_conversation(line, "test");
}

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "one"},
                     {"role": "user", "content": "2?"}, {"role": "assistant", "content": "two"}]})";

std::vector<std::string> said(const AssistantText& text) {
  std::vector<std::string> parts;
  for (const ByteRange& range : text.ranges)
    parts.push_back(text.text.substr(range.begin, range.end - range.begin));
  return parts;
}

AssistantText said_with(const std::string& source, const std::string& line,
                        LearnRule rule = LearnRule::kAssistant) {
  LearnOptions options;
  options.rule = rule;
  return assistant_text(conversation_of(line), ChatTemplate::parse(source, "t"), options);
}

using Parts = std::vector<std::string>;

constexpr const char* kChatMl =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(Learned, FindsEachTurnByItsPrefixes) {
  EXPECT_EQ(said(said_with(kChatMl, kTwoTurns)), (Parts{"one</>\n", "two</>\n"}));
  EXPECT_EQ(said(said_with(kChatMl, kTwoTurns, LearnRule::kLast)), (Parts{"two</>\n"}));
  EXPECT_EQ(said(said_with("x" + std::string(kChatMl), kTwoTurns, LearnRule::kAll)).size(), 1U);
  const AssistantText nothing = said_with(kChatMl, R"({"messages": [{"role": "user", "content": "1?"}]})");
  EXPECT_TRUE(nothing.ranges.empty());
  EXPECT_EQ(nothing.turns, 0U);
}

constexpr const char* kWeighed =
    R"({"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "no", "weight": 0},
                     {"role": "user", "content": "2?"}, {"role": "assistant", "content": "yes", "weight": 1}]})";
constexpr const char* kMarked =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";

TEST(Learned, LeavesOutTheTurnsThatSaySo) {
  EXPECT_EQ(said(said_with(kChatMl, kWeighed)), (Parts{"yes</>\n"}));
  EXPECT_EQ(said(said_with(kMarked, kWeighed)), (Parts{"yes"}));
  const std::string first =
      R"({"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "yes", "train": true},
                       {"role": "user", "content": "2?"}, {"role": "assistant", "content": "no", "train": false}]})";
  EXPECT_EQ(said(said_with(kChatMl, first, LearnRule::kLast)), (Parts{"yes</>\n"}));
  EXPECT_EQ(said(said_with(kMarked, first, LearnRule::kLast)), (Parts{"yes"}));
  EXPECT_THROW(said_with(kChatMl, kWeighed, LearnRule::kAll), ConfigError);
}

TEST(Learned, OfMessagesTheCompletionAlone) {
  const std::string line =
      R"({"prompt": [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "one"},
                     {"role": "user", "content": "2?"}], "completion": [{"role": "assistant", "content": "two"}]})";
  EXPECT_EQ(said(said_with(kChatMl, line)), (Parts{"two</>\n"}));
}

TEST(Learned, JoinsPartsOfTextForATemplateThatTakesTexts) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]},
                       {"role": "assistant", "content": [{"type": "text", "text": "c"}]}]})";
  EXPECT_EQ(said_with(kChatMl, line).text, "<user>a b</>\n<assistant>c</>\n");
  const std::string of_parts =
      "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}[{{ part.text }}]{% endfor %}{% "
      "endfor %}";
  EXPECT_EQ(said_with(of_parts, line).text, "<user>[a ][b]<assistant>[c]");
}

TEST(Learned, GivesTheTemplateWhatTheRowSaysAndLetsItWin) {
  LearnOptions options;
  JsonValue low;
  low.value = std::string("low");
  options.variables = {{"effort", low}};
  const std::string source = "{{ effort }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"effort": "high"}})";
  EXPECT_EQ(assistant_text(conversation_of(line), ChatTemplate::parse(source, "t"), options).text, "higha");
}

TEST(Learned, FindsTheEndOfATurnWhoseReasoningIsDroppedLater) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think></think>{% "
      "endif %}"
      "{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const AssistantText text = said_with(source, kTwoTurns);
  EXPECT_EQ(said(text), (Parts{"one</>", "<think></think>two</>"}));
  EXPECT_EQ(text.unplaced_turns, 0U);
}

TEST(Learned, TakesAPromptThatGoesOnOtherwiseAsFarAsItAgrees) {
  const std::string source =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}"
      "{% if add_generation_prompt %}[assistant]<think>{% endif %}";
  EXPECT_EQ(said(said_with(source, kTwoTurns)), (Parts{"one.", "two."}));
}

TEST(Learned, CountsTurnsThatItCannotPlace) {
  const std::string backwards =
      "{% for m in messages | reverse %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  const AssistantText text = said_with(backwards, kTwoTurns);
  EXPECT_EQ(text.turns, 2U);
  EXPECT_EQ(text.unplaced_turns, 2U);
  const std::string choosy =
      "{% if messages | length == 1 %}{{ raise_exception('more') }}{% endif %}" + std::string(kChatMl);
  EXPECT_EQ(said(said_with(choosy, kTwoTurns)), (Parts{"one</>\n", "two</>\n"}));
}

/// As mistral-nemo: the system's message stands in the last user's, and only where the user speaks last.
TEST(Learned, FindsTurnsBehindTextThatDependsOnWhatFollows) {
  const std::string nemo =
      "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
      "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ system if loop.last }}{{ m.content }}[/INST]"
      "{% elif m.role == 'assistant' %} {{ m.content | trim }}</s>{% endif %}{% endfor %}";
  EXPECT_EQ(said(said_with(nemo, R"({"messages": [{"role": "system", "content": "brief"},
      {"role": "user", "content": "1"}, {"role": "assistant", "content": "one "},
      {"role": "user", "content": "2"}, {"role": "assistant", "content": "two"}]})")),
            (Parts{"one</s>", "two</s>"}));
}

/// As phi-3.5 and gpt-oss: a mark behind the conversation alone, or another one behind its last turn.
TEST(Learned, FindsTurnsOfTemplatesThatCloseTheLastInAnotherWay) {
  const std::string turns = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}";
  const std::string prompt = "{% if add_generation_prompt %}<|assistant|>";
  EXPECT_EQ(said(said_with(turns + "<|end|>{% endfor %}" + prompt + "{% else %}<|endoftext|>{% endif %}",
                           kTwoTurns)),
            (Parts{"one<|end|>", "two<|end|><|endoftext|>"}));
  EXPECT_EQ(said(said_with(turns +
                               "{{ '<|return|>' if loop.last and m.role == 'assistant' else '<|end|>' }}"
                               "{% endfor %}" +
                               prompt + "{% endif %}",
                           kTwoTurns)),
            (Parts{"one", "two<|return|>"}));
}

/// A member is read where the template names it as a word of its own, not within a longer one.
TEST(Learned, TakesWhatTheTemplateMarks) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(said(said_with(source, kTwoTurns)), (Parts{"one", "two"}));
  EXPECT_EQ(said(said_with(source, kTwoTurns, LearnRule::kLast)), (Parts{"two"}));
}

/// Where a turn's marks depend on whether it is the last, its prefix alone miscounts them.
TEST(Learned, TakesTheMarksOfATurnFromThePlaceWhereTheNextBegins) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{% if loop.last %}{% generation %}[think]"
      "{% endgeneration %}{% endif %}{% generation %}{{ m.content }}{% endgeneration %};"
      "{% else %}U:{{ m.content }};{% endif %}{% endfor %}";
  const auto turns = [](const std::string& between) {
    std::string line = R"({"messages": [{"role": "user", "content": "u"})";
    for (const char* turn : {R"("a1", "weight": 1)", R"("a2", "weight": 0)", R"("a3", "weight": 0)"})
      line += R"(, {"role": "assistant", "content": )" + (turn + ("}" + between));
    return line + "]}";
  };
  const AssistantText text = said_with(source, turns(R"(, {"role": "user", "content": "u"})"));
  EXPECT_EQ(said(text), (Parts{"a1"}));
  EXPECT_EQ(text.unplaced_turns, 0U);
  // With no message between the turns nothing says where a1's marks end.
  const AssistantText joined = said_with(source, turns(""));
  EXPECT_TRUE(joined.ranges.empty());
  EXPECT_EQ(joined.unplaced_turns, 1U);
}

/// Tags of templates that mark, as blocks that mark nothing.
std::string unmarked(std::string source) {
  for (const auto& [tag, block] :
       {std::pair<std::string, std::string>{" endgeneration ", " endif "}, {" generation ", " if true "}})
    for (std::size_t at = source.find(tag); at != std::string::npos; at = source.find(tag, at))
      source.replace(at, tag.size(), block);
  return source;
}

/// What a model is asked with for its turn.
std::string prompt_of(const ChatTemplate& chat_template, const Conversation& conversation, std::size_t turn,
                      const LearnOptions& options) {
  ChatRequest request;
  request.messages.value = JsonValue::Array(
      conversation.messages.begin(), conversation.messages.begin() + static_cast<std::ptrdiff_t>(turn));
  request.tools = conversation.tools;
  request.variables = options.variables;
  request.now = options.now;
  request.add_generation_prompt = true;
  return chat_template.render(request).text;
}

std::vector<std::size_t> turns_of(const Conversation& conversation) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (*conversation.messages[i].find("role")->text() == "assistant") turns.push_back(i);
  return turns;
}

// What a template marks itself, and what its prefixes say: a marked part may begin with the end of the
// prompt, which is not learned, or with as much of it as the turn goes on with; else both begin at the same
// byte.
TEST(Learned, FindsWithoutMarksWhatTheTemplatesMark) {
  std::size_t compared = 0;
  for (const fs::path& folder : testing::template_folders()) {
    const ChatTemplate marked = ChatTemplate::parse(source_of(folder), folder.filename().string());
    if (!marked.marks_assistant()) continue;
    const ChatTemplate plain = ChatTemplate::parse(unmarked(source_of(folder)), "unmarked");
    ASSERT_FALSE(plain.marks_assistant());
    for (const JsonValue& line : testing::json_lines(folder / "cases.jsonl")) {
      const JsonValue* spans = line.find("assistant_spans");
      if (spans == nullptr || *line.find("add_generation_prompt")->boolean()) continue;
      LearnOptions options;
      options.variables = *line.find("kwargs")->object();
      options.now = reference_clock();
      const Conversation conversation{*line.find("messages")->array(), *line.find("tools"), {}};
      const AssistantText expected = assistant_text(conversation, marked, options);
      const AssistantText found = assistant_text(conversation, plain, options);
      const std::string where = folder.filename().string() + ", " + *line.find("name")->text();
      ASSERT_EQ(found.text, expected.text) << where;
      EXPECT_EQ(found.ranges.size() + found.unplaced_turns, expected.ranges.size()) << where;
      EXPECT_EQ(found.unplaced_turns, 0U) << where;
      if (found.ranges.size() != expected.ranges.size()) continue;
      const std::vector<std::size_t> turns = turns_of(conversation);
      ASSERT_EQ(turns.size(), found.ranges.size()) << where;
      for (std::size_t i = 0; i < found.ranges.size(); ++i) {
        EXPECT_EQ(found.ranges[i].end, expected.ranges[i].end) << where;
        const std::string prompt = prompt_of(plain, conversation, turns[i], options);
        const std::size_t marked = expected.ranges[i].begin;
        const std::string_view heading = std::string_view(prompt).substr(std::min(marked, prompt.size()));
        const auto said_bytes =
            std::ranges::mismatch(heading, std::string_view(found.text).substr(marked)).in1 - heading.begin();
        EXPECT_EQ(found.ranges[i].begin, marked + static_cast<std::size_t>(said_bytes))
            << where << ", turn " << i << " behind the prompt " << prompt;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0U);
}

/// A line of {"messages": [...]} with short questions and answers.
std::string conversation_line(int turns) {
  std::string line = R"({"messages": [)";
  for (int i = 0; i < turns; ++i)
    line += std::string(i == 0 ? "" : ", ") + R"({"role": "user", "content": "how much is )" +
            std::to_string(i) + R"(?"}, {"role": "assistant", "content": "it is )" + std::to_string(i * i) +
            R"("})";
  return line + "]}";
}

/// 10,000 messages would be rendered 10,000 times, 5,000 at a time: refused before, in the time of one
/// rendering. What is learned without looking for turns has no limit but the text.
TEST(Learned, RefusesAConversationWhoseTurnsWouldTakeTooLongToFind) {
  const std::string line = conversation_line(5000);
  const std::clock_t start = std::clock();
  const std::string message = testing::message_of<ConfigError>([&] { said_with(kChatMl, line); });
  EXPECT_NE(message.find("a conversation of 10000 messages and "), std::string::npos) << message;
  EXPECT_NE(message.find("to find its 5000 assistant turns"), std::string::npos) << message;
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, testing::kSanitized ? 20 : 2);
  EXPECT_EQ(said(said_with(kChatMl, line, LearnRule::kAll)).size(), 1U);
  EXPECT_EQ(said(said_with(kChatMl, line, LearnRule::kLast)), Parts{"it is 24990001</>\n"});
  EXPECT_EQ(said_with("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                      "{% endgeneration %}{% endif %}{% endfor %}",
                      line)
                .ranges.size(),
            5000U);
}

/// Bytes count as well as turns: few turns of long texts.
TEST(Learned, BoundsTheBytesThatAreRenderedToFindTurns) {
  const std::string answer(512 << 10, 'a');
  std::string line = R"({"messages": [)";
  for (int i = 0; i < 80; ++i)
    line += std::string(i == 0 ? "" : ", ") + R"({"role": "user", "content": "?"}, {"role": "assistant", )" +
            R"("content": ")" + answer + "\"}";
  const std::string message = testing::message_of<ConfigError>([&] { said_with(kChatMl, line + "]}"); });
  EXPECT_NE(message.find("is too long to find its 80 assistant turns"), std::string::npos) << message;
}

TEST(Learned, FindsTheTurnsOfALongConversation) {
  const AssistantText text = said_with(kChatMl, conversation_line(400));
  EXPECT_EQ(text.ranges.size(), 400U);
  EXPECT_EQ(text.unplaced_turns, 0U);
}

TEST(Learned, TakesATokenThatHoldsAByteOfARange) {
  const std::vector<ByteRange> offsets = {{0, 2}, {2, 5}, {5, 5}, {5, 7}, {9, 11}};
  EXPECT_EQ(digits_of(mask_of({{3, 6}}, offsets)), "01110") << "also one whose offsets were trimmed away";
  EXPECT_EQ(digits_of(mask_of({{3, 6}}, {{0, 2}, {2, 5}, {5, 7}})), "011");
  EXPECT_EQ(digits_of(mask_of({{2, 2}, {7, 9}}, offsets)), "00000");
  EXPECT_EQ(digits_of(mask_of({{0, 1}, {1, 2}, {8, 12}}, offsets)), "10001");
  EXPECT_EQ(digits_of(mask_of({{0, 7}}, {})), "");
}

}  // namespace
}  // namespace moeloom
