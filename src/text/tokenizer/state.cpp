#include "tokenizer/state.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "tokenizer/input_text.hpp"

namespace moeloom {

using namespace tokenizing;

namespace {

/// Made of the member, or empty where there is none.
template <typename Part>
Part part_of(const Field& file, std::string_view key) {
  const auto field = file.optional(key);
  return field ? Part(*field) : Part();
}

/// use(begin, end) for each word of a piece without a pre-tokenizer: from a "▁" behind another character to
/// the next.
template <typename Use>
void each_word(std::string_view text, const Use& use) {
  constexpr std::string_view kMark = "\u2581";
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = begin;
    while (text.substr(end).starts_with(kMark)) end += kMark.size();
    end = std::min(text.find(kMark, end), text.size());
    use(begin, end);
    begin = end;
  }
}

}  // namespace

/// One encoding on its way.
struct Tokenizer::State::Run {
  Workspace& space;
  Context context;
  std::vector<std::uint32_t>& ids;
  std::vector<ByteRange>* offsets = nullptr;

  void add(std::uint32_t id, const Piece& piece, std::size_t begin, std::size_t end) {
    ids.push_back(id);
    if (offsets != nullptr) offsets->push_back(piece.origin(begin, end));
  }
};

Tokenizer::State::Model Tokenizer::State::model_of(const Field& field, PreTokenizer& pre_tokenizer) {
  const Field vocab = field.member("vocab");
  const std::size_t untold = vocab.value().array() != nullptr ? 1 : 0;
  const bool is_bpe = field.choice("type", {"BPE", "Unigram"}, untold) == 0;
  if (!is_bpe) return Model(std::in_place_type<Unigram>, field);
  // These would speak of letters where the model takes bytes.
  const bool plain = field.text_or_empty("continuing_subword_prefix").empty() &&
                     field.text_or_empty("end_of_word_suffix").empty() &&
                     !field.boolean_or("byte_fallback", false);
  const bool of_bytes = plain && pre_tokenizer.take_last_letters();
  return Model(std::in_place_type<Bpe>, field, of_bytes ? Bpe::Unit::kByte : Bpe::Unit::kCharacter);
}

namespace {

/// Of one side of a text: `present`, unless the folder says otherwise of its token. transformers drops a wish
/// for a token that is none without a word.
std::vector<std::uint32_t> side_of(const std::optional<bool>& adds, const std::string& token,
                                   const char* name, const std::vector<std::uint32_t>& present,
                                   const AddedTokens& added, const Vocabulary& vocabulary) {
  if (!adds || (*adds && token.empty())) return present;
  if (!*adds) return {};
  if (const AddedToken* found = added.find(token)) return {found->id};
  if (const auto id = vocabulary.id_of(token)) return {*id};
  throw ConfigError({std::string("tokenizer_config.json: add_") + name + " is true, but " + name +
                     " is no token: \"" + token + "\""});
}

/// transformers 4 rewrites a pre-tokenizer of bytes by the folder's add_prefix_space, and 5 does for some
/// classes.
void check_prefix_space(const Field& file, const FolderRules& rules) {
  const auto field = file.optional("pre_tokenizer");
  if (!rules.add_prefix_space || !field || field->text_or_empty("type") != "ByteLevel") return;
  if (field->boolean_or("add_prefix_space", true) != *rules.add_prefix_space)
    throw ConfigError({field->path() + ".add_prefix_space is " +
                       (*rules.add_prefix_space ? "false" : "true") +
                       ", and tokenizer_config.json says the opposite; make them alike (ignored keys = "
                       "add_prefix_space takes this file's)"});
}

}  // namespace

Tokenizer::State::State(const Field& file, const FolderRules& rules)
    : normalizer_(part_of<Normalizer>(file, "normalizer")),
      pre_tokenizer_(part_of<PreTokenizer>(file, "pre_tokenizer")),
      model_(model_of(file.member("model"), pre_tokenizer_)),
      added_(file.optional("added_tokens"), rules.decoder_tokens, rules.special_tokens, vocabulary(),
             normalizer_),
      post_processor_(part_of<PostProcessor>(file, "post_processor")),
      decoder_(part_of<TokenDecoder>(file, "decoder")) {
  check_prefix_space(file, rules);
  // "truncation" and "padding" are what somebody's last call left behind: transformers sets both at each
  // call.
  const AddAround present = post_processor_.added();
  post_processor_.add_instead(
      {side_of(rules.adds_bos, rules.bos, "bos_token", present.before, added_, vocabulary()),
       side_of(rules.adds_eos, rules.eos, "eos_token", present.after, added_, vocabulary())});
}

void Tokenizer::State::add_tokens(std::string_view word, Workspace& space) const {
  if (const Bpe* bpe = std::get_if<Bpe>(&model_))
    bpe->encode(word, space.bpe, space.tokens);
  else
    std::get<Unigram>(model_).encode(word, space.unigram, space.tokens);
}

void Tokenizer::State::encode_word(const Piece& word, Run& run) const {
  const bool known_words = run.offsets == nullptr && word.text.size() <= WordCache::kLongestWord;
  WordCache::Entry* entry = known_words ? &run.space.words.place(word.text) : nullptr;
  if (entry != nullptr && entry->holds(word.text)) {
    for (std::size_t i = 0; i < entry->count; ++i) run.ids.push_back(entry->ids[i]);
    return;
  }
  run.space.tokens.clear();
  add_tokens(word.text, run.space);
  const std::size_t before = run.ids.size();
  for (const Token& token : run.space.tokens) run.add(token.id, word, token.begin, token.end);
  if (entry != nullptr) WordCache::keep(*entry, word.text, std::span(run.ids).subspan(before));
}

void Tokenizer::State::encode_piece(const Piece& piece, Run& run) const {
  const Bpe* bpe = std::get_if<Bpe>(&model_);
  if (bpe == nullptr || !bpe->splits_at_words()) return encode_word(piece, run);
  each_word(piece.text,
            [&](std::size_t begin, std::size_t end) { encode_word(piece.part(begin, end), run); });
}

void Tokenizer::State::encode_raw(const Piece& piece, Run& run) const {
  const auto normalized = normalizer_.apply(piece, run.context);
  const Piece text = normalized ? normalized->piece() : piece;
  for (const TextPart& part : added_.normalized().parts(text.text)) {
    const Piece between = text.part(part.range.begin, part.range.end);
    if (part.token != nullptr)
      run.add(part.token->id, between, 0, between.text.size());
    else
      pre_tokenizer_.split(between, run.context, [&](const Piece& each) { encode_piece(each, run); });
  }
}

void Tokenizer::State::encode_input(std::string_view utf8, Run& run) const {
  constexpr std::size_t kLongest = std::size_t{1} << 30;
  if (utf8.size() > kLongest)
    throw ConfigError({"a text of " + std::to_string(utf8.size()) +
                       " bytes is too long to be encoded at once; at most " + std::to_string(kLongest)});
  const InputText input(utf8, run.context.tracked);
  const Piece whole = input.piece();
  for (const TextPart& part : added_.raw().parts(whole.text)) {
    const Piece piece = whole.part(part.range.begin, part.range.end);
    if (part.token != nullptr)
      run.add(part.token->id, piece, 0, piece.text.size());
    else
      encode_raw(piece, run);
  }
}

std::vector<std::uint32_t> Tokenizer::State::encode(std::string_view utf8, bool add_special_tokens) const {
  const WorkspacePool::Loan workspace = workspaces_.lend();
  const bool tracked = pre_tokenizer_.asks_for_begin();
  std::vector<std::uint32_t> ids;
  ids.reserve(utf8.size() / 4 + 8);
  const AddAround& around = post_processor_.added();
  if (add_special_tokens) ids = around.before;
  Run run{*workspace, context_for(utf8, tracked, (*workspace).regex), ids, nullptr};
  encode_input(utf8, run);
  if (add_special_tokens) ids.insert(ids.end(), around.after.begin(), around.after.end());
  return ids;
}

Encoding Tokenizer::State::encode_with_offsets(std::string_view utf8, bool add_special_tokens) const {
  const WorkspacePool::Loan workspace = workspaces_.lend();
  Encoding encoding;
  Run run{*workspace, context_for(utf8, true, (*workspace).regex), encoding.ids, &encoding.offsets};
  encode_input(utf8, run);
  if (post_processor_.trims())
    post_processor_.trim(utf8, encoding, [&](std::uint32_t id) {
      return added_.find(id) != nullptr ? nullptr : vocabulary().token(id);
    });
  if (!add_special_tokens) return encoding;
  const auto& [before, after] = post_processor_.added();
  encoding.ids.insert(encoding.ids.begin(), before.begin(), before.end());
  encoding.ids.insert(encoding.ids.end(), after.begin(), after.end());
  encoding.offsets.insert(encoding.offsets.begin(), before.size(), ByteRange{});
  encoding.offsets.insert(encoding.offsets.end(), after.size(), ByteRange{});
  return encoding;
}

std::string Tokenizer::State::decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const {
  const bool bytes = decoder_.is_byte_level();
  std::string text;  // of the byte-level decoder, which needs no list
  std::vector<std::string> strings;
  for (const std::uint32_t id : ids) {
    const AddedToken* token = added_.find(id);
    if (token != nullptr && token->special && skip_special_tokens) continue;
    const std::string* string = token != nullptr ? &added_.decoded(*token) : vocabulary().token(id);
    if (string == nullptr) continue;
    if (bytes)
      text += byte_level_bytes(*string);
    else
      strings.push_back(*string);
  }
  if (bytes) return valid_utf8(text);
  decoder_.apply(strings);
  for (const std::string& each : strings) {
    if (decoder_.is_none() && &each != &strings.front()) text += ' ';
    text += each;
  }
  return text;
}

}  // namespace moeloom
