#include "tokens/tokenizer_kinds.h"

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "tokens/added_tokens.h"
#include "tokens/byte_pairs.h"
#include "tokens/text_steps.h"

namespace tracestep {
namespace {

// The most tokens set before a text; a template may name a list of ids again and again.
constexpr std::size_t kMostStart = 1024;

// Returns the tokens that a template sets before a text; refuses post-processors that change texts.
std::vector<std::int32_t> start_in(const TokenizerFields& file) {
  std::vector<std::int32_t> out;
  if (file.find("post_processor") == nullptr) return out;
  for_each_component(file.part("post_processor"), "processors", [&out](const auto& step) {
    if (step.type() == "ByteLevel") return;
    if (step.type() != "TemplateProcessing") {
      step.refuse("the post-processor {} is not known here; ByteLevel, TemplateProcessing are",
                  step.type());
    }
    const TokenizerFields tokens = step.part("special_tokens");
    int index = 0;
    for (const Json& item : step.array("single")) {
      const TokenizerFields piece(item, fmt::format("{}: single[{}]", step.where(), index++));
      if (piece.find("SpecialToken") == nullptr) break;  // the text
      const std::string name = piece.part("SpecialToken").text("id");
      for (const Json& id : tokens.part(name).array("ids")) out.push_back(step.id(id, name));
      if (out.size() > kMostStart) step.refuse("more than {} tokens before a text", kMostStart);
    }
  });
  return out;
}

template <class Steps>
Steps steps_in(const TokenizerFields& file, std::string_view name) {
  return file.find(name) == nullptr ? Steps() : Steps(file.part(name));
}

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const TokenizerFields& file, std::string content)
      : content_(std::move(content)),
        normalizer_(steps_in<TextNormalizer>(file, "normalizer")),
        pre_tokenizer_(steps_in<PreTokenizer>(file, "pre_tokenizer")),
        pairs_(file.part("model"),
               {.is_byte_level = pre_tokenizer_.is_byte_level(), .space = space()}),
        texts_(pairs_.take_texts()),
        start_(start_in(file)) {
    add_tokens(file);
    for (const std::int32_t id : start_) check_token(id, vocab_size());
  }

  std::string name() const override { return "bpe"; }
  std::int64_t vocab_size() const override { return std::ssize(texts_); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = with_replacements(text);
    std::vector<std::int32_t> out;
    BytePairs::Cache cache;
    const PreTokenizer::OnWord on_word = [&](std::string_view word) {
      pairs_.encode(word, cache, out);
    };
    const auto on_token = [&out](std::int32_t id) { out.push_back(id); };
    std::size_t room = TextNormalizer::room_of(text.size());
    const auto on_raw = [&](std::string_view raw) {
      TextNormalizer::Result changed{"", 1};
      if (!normalizer_.is_empty()) changed = normalizer_.apply(raw, room);
      const std::string_view normal = normalizer_.is_empty() ? raw : changed.text;
      const std::size_t first = raw.data() == text.data() ? changed.first_bytes : 0;
      const auto on_normal = [&](std::string_view part) {
        const auto begin = static_cast<std::size_t>(part.data() - normal.data());
        pre_tokenizer_.cut(part, begin < first, on_word);
      };
      of_normalized_.split(normal, on_normal, on_token);
    };
    of_raw_.split(text, on_raw, on_token);
    return out;
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string out;
    for (const std::int64_t token : tokens) {
      const auto& text = texts_[static_cast<std::size_t>(check_token(token, vocab_size()))];
      if (text) out += *text;
    }
    // Removes the space that encoding has put before the text.
    if (prepends_space() && out.starts_with(' ')) out.erase(0, 1);
    return out;
  }

  std::optional<std::int64_t> byte_count(std::int64_t token) const override {
    if (token < 0 || token >= vocab_size() || token == pairs_.unknown()) return std::nullopt;
    const auto& text = texts_[static_cast<std::size_t>(token)];
    return text ? std::optional<std::int64_t>(std::ssize(*text)) : std::nullopt;
  }

  std::vector<std::int32_t> start() const override { return start_; }
  std::string content() const override { return content_; }
  std::string tokenizer_json() const override { return content_; }

 private:
  std::string space() const {
    return pre_tokenizer_.space().empty() ? normalizer_.space() : pre_tokenizer_.space();
  }
  bool prepends_space() const {
    return normalizer_.prepends_space() || pre_tokenizer_.prepends_space();
  }

  // Reads the added tokens. One in the vocabulary keeps its number there; the others follow the
  // vocabulary. The file's ids must agree, as `tokenizers` itself goes by this rule alone.
  void add_tokens(const TokenizerFields& file) {
    if (file.find("added_tokens") == nullptr) return;
    std::vector<AddedToken> of_raw, of_normalized;
    std::int32_t next = pairs_.vocab_count();
    std::size_t room = TextNormalizer::room_of(content_.size());
    int index = 0;
    for (const Json& item : file.array("added_tokens")) {
      const TokenizerFields fields(item,
                                   fmt::format("{}: added_tokens[{}]", file.where(), index++));
      fields.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token{.content = fields.text("content"),
                       .pattern = {},
                       .single_word = fields.flag("single_word", false),
                       .lstrip = fields.flag("lstrip", false),
                       .rstrip = fields.flag("rstrip", false)};
      if (token.content.empty()) continue;
      fields.check_token(token.content);
      const auto known = pairs_.find(token.content);
      token.id = fields.id(fields.at("id"), token.content);
      if (const std::int32_t expected = known ? *known : next++; token.id != expected) {
        fields.refuse("\"{}\" has the id {}, where the vocabulary gives it {}",
                      escaped(token.content), token.id, expected);
      }
      const bool special = fields.flag("special", false);
      const bool is_normalized = fields.flag("normalized", !special);
      token.pattern = is_normalized ? normalizer_.apply(token.content, room).text : token.content;
      if (token.pattern.empty()) fields.refuse("its content is normalized to nothing");
      fields.check_token(token.pattern);
      set_text(token, fields);
      (is_normalized ? of_normalized : of_raw).push_back(std::move(token));
    }
    of_raw_ = AddedTokens(std::move(of_raw), file.where());
    of_normalized_ = AddedTokens(std::move(of_normalized), file.where());
  }

  // Sets the text of an added token: its pattern, before which a normalizer may have put a space. A
  // token that is in the vocabulary, too, may come from merges, and keeps the vocabulary's text
  // unless its pattern differs from its content.
  void set_text(const AddedToken& token, const TokenizerFields& fields) {
    const auto id = static_cast<std::size_t>(token.id);
    const bool is_known = pairs_.find(token.content).has_value();
    if (is_known && token.pattern == token.content) return;
    if (id >= texts_.size()) texts_.resize(id + 1);
    if (texts_[id] && !is_known) {
      fields.refuse("\"{}\" has the id {} of another token", escaped(token.content), id);
    }
    // In a vocabulary of bytes, an added token's characters stand for themselves, not for bytes.
    texts_[id] = pre_tokenizer_.is_byte_level() ? token.pattern : pairs_.text_of(token.pattern);
  }

  std::string content_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BytePairs pairs_;
  std::vector<std::optional<std::string>> texts_;
  std::vector<std::int32_t> start_;
  AddedTokens of_raw_, of_normalized_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(const std::string& content,
                                                const std::string& origin) {
  const Json json = Json::parse(content, origin);
  const TokenizerFields file(json, origin);
  file.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
              "post_processor", "decoder", "model"});
  if (file.find("version") != nullptr && file.text("version") != "1.0") {
    file.refuse("its version is {}; 1.0 is read here", file.text("version"));
  }
  return std::make_unique<JsonTokenizer>(file, content);
}

}  // namespace tracestep
