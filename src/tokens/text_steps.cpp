// The only file that uses the utf8proc library, to normalize text.
#include "tokens/text_steps.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include <utf8proc.h>

#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostSteps = 64;
constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// The pattern of a step, which its file has as {"String": "…"} or {"Regex": "…"}.
TextPattern pattern_of(const TokenizerFields& step) {
  const TokenizerFields pattern = step.part("pattern");
  pattern.allow({"String", "Regex"});
  if (pattern.find("Regex") != nullptr) {
    return TextPattern::expression(pattern.text("Regex"), step.where());
  }
  std::string text = pattern.text("String");
  if (text.empty()) step.refuse("its pattern is empty");
  return TextPattern::literal(std::move(text));
}

bool is_space(const TokenizerFields& step) {
  const Json* pattern = step.find("pattern");
  const Json* text = pattern->find("String");
  return text != nullptr && *text == Json(" ");
}

// A text that a step has changed, with its `first_bytes` (TextNormalizer::Result).
using Changed = TextNormalizer::Result;

// Returns the text with each match replaced by `by`, which counts among the first bytes if the
// whole match does; nullopt: the result would have more than `most` bytes.
std::optional<Changed> replaced(std::string_view text, std::size_t first_bytes,
                                const TextPattern& pattern, std::string_view by, std::size_t most) {
  Changed out{"", 0};
  std::size_t at = 0;
  const auto keep = [&](std::size_t end) {
    if (first_bytes > at) out.first_bytes = out.text.size() + std::min(first_bytes, end) - at;
    out.text += text.substr(at, end - at);
    at = end;
  };
  while (const auto match = pattern.find(text, at)) {
    if (out.text.size() + match->begin - at + by.size() > most) return std::nullopt;
    keep(match->begin);
    out.text += by;
    if (match->end <= first_bytes) out.first_bytes = out.text.size();
    at = match->end;
  }
  if (out.text.size() + text.size() - at > most) return std::nullopt;
  keep(text.size());
  return out;
}

void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(made, &std::free);
  if (size < 0)
    fail_input("tokenizer"_field, "a text cannot be normalized: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(size));
}

// The text in Unicode's NFC. An ASCII character never joins one before it, so each stretch without
// ASCII is normalized with the one character before it, and ASCII alone stays.
std::string nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (is_ascii(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at - (at > done ? 1 : 0);
    while (at < text.size() && !is_ascii(text[at])) ++at;
    out += text.substr(done, begin - done);
    append_nfc(text.substr(begin, at - begin), out);
    done = at;
  }
  out += text.substr(done);
  return out;
}

// Returns the text in NFC; its first bytes are those that the first bytes of `before` became.
Changed composed(const Changed& before) {
  Changed out{nfc(before.text), 0};
  std::string first = nfc(std::string_view(before.text).substr(0, before.first_bytes));
  for (std::string_view rest = first; !rest.empty();) {
    rest.remove_prefix(first_character(rest).size());
    if (out.first_bytes == out.text.size()) break;
    out.first_bytes += first_character(std::string_view(out.text).substr(out.first_bytes)).size();
  }
  return out;
}

}  // namespace

TextNormalizer::TextNormalizer(const TokenizerFields& component) {
  for_each_component(component, "normalizers", [this](const auto& step) { add(step); });
}

void TextNormalizer::add(const TokenizerFields& step) {
  if (steps_.size() == kMostSteps) step.refuse("there are more than {} steps", kMostSteps);
  const std::string type = step.type();
  if (type == "NFC") {
    step.allow({});
    steps_.push_back({Nfc(), step.where()});
  } else if (type == "Prepend") {
    step.allow({"prepend"});
    std::string content = step.text("prepend");
    // With nothing to prepend and NFC after it, `tokenizers` would repeat the first character.
    if (content.empty()) step.refuse("it prepends nothing");
    steps_.push_back({Prepend{std::move(content)}, step.where()});
    prepends_space_ = true;
  } else if (type == "Replace") {
    step.allow({"pattern", "content"});
    steps_.push_back({Replace{pattern_of(step), step.text("content")}, step.where()});
    if (is_space(step)) space_ = step.text("content");
  } else {
    step.refuse("the normalizer {} is not known here; NFC, Prepend, Replace are", type);
  }
}

TextNormalizer::Result TextNormalizer::apply(std::string_view text, std::size_t& room) const {
  Result out{std::string(text), text.empty() ? 0 : first_character(text).size()};
  for (const Step& step : steps_) {
    const std::size_t before = out.text.size(), most = before + room;
    std::optional<Result> changed;
    if (const auto* prepend = std::get_if<Prepend>(&step.change)) {
      const std::size_t added = before == 0 ? 0 : prepend->content.size();
      if (added <= room) {
        out.text.insert(0, prepend->content, 0, added);
        if (out.first_bytes > 0) out.first_bytes += added;
        changed = std::move(out);
      }
    } else if (const auto* replace = std::get_if<Replace>(&step.change)) {
      changed = replaced(out.text, out.first_bytes, replace->pattern, replace->content, most);
    } else {
      changed = composed(out);  // a text of at most three times the bytes
    }
    if (!changed || changed->text.size() > most) {
      fail_input("tokenizer"_field,
                 "{}: a text grows by more than the {} bytes that are left for it; all steps may "
                 "add 8 times its bytes and 1 MiB",
                 step.where, room);
    }
    out = *std::move(changed);
    room -= std::max(out.text.size(), before) - before;
  }
  return out;
}

PreTokenizer::PreTokenizer(const TokenizerFields& component) {
  for_each_component(component, "pretokenizers", [this](const auto& step) { add(step); });
}

void PreTokenizer::add(const TokenizerFields& step) {
  if (steps_.size() >= kMostSteps) step.refuse("there are more than {} steps", kMostSteps);
  if (is_byte_level_) step.refuse("a step after ByteLevel, which has to be the last");
  const std::string type = step.type();
  if (type == "Split") {
    add_split(step);
  } else if (type == "Digits") {
    step.allow({"individual_digits"});
    const bool single = step.flag("individual_digits", false);
    steps_.emplace_back(Split{TextPattern::expression(single ? "\\p{N}" : "\\p{N}+", step.where()),
                              Behavior::kIsolated});
  } else if (type == "ByteLevel") {
    add_byte_level(step);
  } else if (type == "Metaspace") {
    add_metaspace(step);
  } else {
    step.refuse("the pre-tokenizer {} is not known here; Split, Digits, ByteLevel, Metaspace are",
                type);
  }
}

void PreTokenizer::add_split(const TokenizerFields& step) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> kNames = {
      {{"Isolated", Behavior::kIsolated},
       {"Removed", Behavior::kRemoved},
       {"MergedWithPrevious", Behavior::kMergedWithPrevious},
       {"MergedWithNext", Behavior::kMergedWithNext},
       {"Contiguous", Behavior::kContiguous}}};
  step.allow({"pattern", "behavior", "invert"});
  const std::string name = step.text("behavior");
  for (const auto& [known, behavior] : kNames) {
    if (name != known) continue;
    steps_.emplace_back(Split{pattern_of(step), behavior, step.flag("invert", false)});
    return;
  }
  step.refuse("the behavior {} is not known", name);
}

void PreTokenizer::add_byte_level(const TokenizerFields& step) {
  step.allow({"add_prefix_space", "trim_offsets", "use_regex"});  // offsets are not made here
  if (step.flag("add_prefix_space", true)) {
    steps_.emplace_back(Prefix{" "});
    prepends_space_ = true;
  }
  if (step.flag("use_regex", true)) {
    steps_.emplace_back(
        Split{TextPattern::expression(kGpt2Expression, step.where()), Behavior::kIsolated});
  }
  is_byte_level_ = true;
}

void PreTokenizer::add_metaspace(const TokenizerFields& step) {
  step.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  if (!steps_.empty()) step.refuse("Metaspace has to be the first step");
  space_ = step.text("replacement");
  if (space_.empty() || first_character(space_).size() != space_.size()) {
    step.refuse("its replacement has {} bytes; one character is needed", space_.size());
  }
  const bool is_given = step.find("prepend_scheme") != nullptr;
  const std::string scheme = is_given ? step.text("prepend_scheme") : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    step.refuse("the prepend_scheme {} is not known", scheme);
  }
  prepends_space_ = scheme != "never";
  if (prepends_space_ && !step.flag("add_prefix_space", true)) {
    step.refuse("add_prefix_space and prepend_scheme contradict each other");
  }
  steps_.emplace_back(Spaces{space_});
  if (prepends_space_) steps_.emplace_back(Prefix{space_, scheme == "first"});
  if (step.flag("split", true)) {
    steps_.emplace_back(Split{TextPattern::literal(space_), Behavior::kMergedWithNext});
  }
}

namespace {

// Calls `on_piece` for the pieces of the text: matches and what lies between them, joined with a
// neighbour or left out as the behavior of `split` says.
template <class Split, class OnPiece>
void for_each_piece(const Split& split, std::string_view text, OnPiece&& on_piece) {
  using Behavior = decltype(split.behavior);
  std::size_t begin = 0, end = 0;  // of the piece that may grow
  bool was_match = false;
  const auto finish = [&] {
    if (end > begin) on_piece(text.substr(begin, end - begin));
  };
  const auto add = [&](std::size_t to, bool is_match) {
    if (to == end) return;
    is_match = is_match != split.invert;
    const bool joins =
        (split.behavior == Behavior::kMergedWithPrevious && is_match && !was_match) ||
        (split.behavior == Behavior::kMergedWithNext && !is_match && was_match) ||
        (split.behavior == Behavior::kContiguous && is_match == was_match);
    if (!joins) {
      finish();
      begin = end;
    }
    end = to;
    was_match = is_match;
    if (split.behavior == Behavior::kRemoved && is_match) begin = end;
  };
  while (const auto match = split.pattern.find(text, end)) {
    add(match->begin, false);
    add(match->end, true);
  }
  add(text.size(), false);
  finish();
}

}  // namespace

void PreTokenizer::cut(std::size_t step, std::string_view text, bool at_start,
                       const OnWord& on_word) const {
  if (text.empty()) return;
  if (step == steps_.size()) return on_word(text);
  if (const auto* split = std::get_if<Split>(&steps_[step])) {
    return for_each_piece(*split, text,
                          [&](std::string_view piece) { cut(step + 1, piece, at_start, on_word); });
  }
  if (const auto* spaces = std::get_if<Spaces>(&steps_[step])) {
    const std::string changed = exchanged(text, " ", spaces->content);
    return cut(step + 1, changed, at_start, on_word);
  }
  const Prefix& prefix = std::get<Prefix>(steps_[step]);
  if ((prefix.at_start_only && !at_start) || text.starts_with(prefix.content)) {
    return cut(step + 1, text, at_start, on_word);
  }
  cut(step + 1, prefix.content + std::string(text), at_start, on_word);
}

}  // namespace tracestep
