#include "tokens/byte_pairs.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/utf8.h"
#include "tokens/text_pattern.h"

namespace tracestep {
namespace {

// How many ids a vocabulary of n tokens may skip beyond n, which bounds the table of its texts.
constexpr std::size_t kMostLeftOut = 65536;
constexpr std::size_t kMostCachedBytes = 128, kMostCachedWords = std::size_t{1} << 20;

// A merge on the heap, which was possible when it was put there; the lowest rank comes first.
struct Candidate {
  std::uint32_t rank, at;
  std::int32_t result;
  bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
};

// The characters of GPT-2's alphabet: printable ones of Latin-1 are themselves, the others follow
// from U+0100 on. All are below U+0800.
std::array<std::string, 256> alphabet() {
  std::array<std::string, 256> out;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const unsigned c = is_itself ? byte : next++;
    if (c < 0x80) {
      out[byte] = static_cast<char>(c);
    } else {
      out[byte] = {static_cast<char>(0xc0u | (c >> 6u)), static_cast<char>(0x80u | (c & 0x3fu))};
    }
  }
  return out;
}

const std::array<std::string, 256>& byte_names() {
  static const std::array<std::string, 256> names = alphabet();
  return names;
}

constexpr std::string_view kFallbackStart = "<0x";

std::string fallback_name(unsigned byte) {
  return fmt::format("{}{:02X}>", kFallbackStart, byte);
}

// Refuses a prefix or suffix; null and an empty text are none, as published files have both.
void refuse_affix(const TokenizerFields& model, std::string_view name) {
  if (model.find(name) != nullptr && !model.text(name).empty()) {
    model.refuse("{} is \"{}\"; only none is known here", name, model.text(name));
  }
}

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  static const TextMap<char> bytes = [] {
    TextMap<char> out;
    for (unsigned byte = 0; byte < 256; ++byte) out[byte_names()[byte]] = static_cast<char>(byte);
    return out;
  }();
  std::string out;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    const auto found = bytes.find(character);
    if (found == bytes.end()) return std::nullopt;
    out += found->second;
    text.remove_prefix(character.size());
  }
  return out;
}

std::string in_alphabet(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += byte_names()[static_cast<unsigned char>(c)];
  return out;
}

BytePairs::BytePairs(const TokenizerFields& model, Text text)
    : is_byte_level_(text.is_byte_level), space_(std::move(text.space)) {
  // Old files do not say the type, and have only what all byte-pair models have.
  if (const std::string type = model.type(); !type.empty() && type != "BPE") {
    model.refuse("models of type {} are not known here, only BPE", type);
  }
  model.allow({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
               "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  refuse_affix(model, "continuing_subword_prefix");
  refuse_affix(model, "end_of_word_suffix");
  if (const Json* dropout = model.find("dropout");
      dropout != nullptr && (!dropout->is_number() || dropout->as_double() != 0.0)) {
    model.refuse("dropout is {}; a text has the same tokens every time here", dropout->dump());
  }
  has_byte_fallback_ = model.flag("byte_fallback", false);
  fuses_unknown_ = model.flag("fuse_unk", false);
  ignores_merges_ = model.flag("ignore_merges", false);
  read_vocab(model);
  cuts_at_spaces_ = !is_byte_level_ && !ignores_merges_ && !space_.empty() && find(space_);
  read_merges(model);
}

std::optional<std::int32_t> BytePairs::find(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

void BytePairs::read_vocab(const TokenizerFields& model) {
  const Json::Object& vocab = model.object("vocab");
  for (const auto& [name, value] : vocab) {
    model.check_token(name);
    const auto id = static_cast<std::size_t>(model.id(value, name));
    if (id >= 2 * vocab.size() + kMostLeftOut) {
      model.refuse("\"{}\" has the id {} in a vocabulary of {}", name, id, vocab.size());
    }
    if (id >= texts_.size()) texts_.resize(id + 1);
    if (texts_[id]) model.refuse("\"{}\" has the id {} of another token", name, id);
    texts_[id] = text_of(name);
    numbers_.emplace(name, static_cast<std::int32_t>(id));
  }
  vocab_count_ = static_cast<std::int32_t>(vocab.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string name = is_byte_level_ ? byte_names()[byte] : fallback_name(byte);
    const auto id = find(name);
    byte_tokens_[byte] = id.value_or(-1);
    if (id && !is_byte_level_ && has_byte_fallback_) {
      texts_[static_cast<std::size_t>(*id)] = std::string(1, static_cast<char>(byte));
    }
  }
  const bool has_all_bytes = std::ranges::find(byte_tokens_, -1) == byte_tokens_.end();
  if (is_byte_level_ && has_byte_fallback_ && !has_all_bytes) {
    model.refuse("byte_fallback beside ByteLevel, and bytes without a token");
  }
  const bool has_unknown = !(has_all_bytes && (is_byte_level_ || has_byte_fallback_));
  if (has_unknown && model.find("unk_token") != nullptr) unknown_ = find(model.text("unk_token"));
}

std::string BytePairs::text_of(std::string_view name) const {
  if (is_byte_level_) return bytes_of_alphabet(name).value_or(std::string(name));
  return space_.empty() ? std::string(name) : exchanged(name, space_, " ");
}

void BytePairs::read_merges(const TokenizerFields& model) {
  const Json::Array& list = model.array("merges");
  merges_.reserve(list.size());
  for (const Json& merge : list) {
    if (merge.is_string()) {
      const std::string& both = merge.as_string();
      const std::size_t space = both.find(' ');
      if (space == both.npos || both.find(' ', space + 1) != both.npos) {
        model.refuse("the merge \"{}\" is not of two tokens", both);
      }
      add_merge(model, std::string_view(both).substr(0, space),
                std::string_view(both).substr(space + 1));
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge.items()[0].is_string() ||
        !merge.items()[1].is_string()) {
      model.refuse("a merge is neither \"a b\" nor [\"a\", \"b\"]");
    }
    add_merge(model, merge.items()[0].as_string(), merge.items()[1].as_string());
  }
}

void BytePairs::add_merge(const TokenizerFields& model, std::string_view left,
                          std::string_view right) {
  const std::string result = fmt::format("{}{}", left, right);
  const std::int32_t a = number_of(model, left), b = number_of(model, right);
  // If the file lists a pair twice, its later place counts.
  merges_[key_of(a, b)] = {next_rank_++, number_of(model, result)};
  if (!cuts_at_spaces_) return;
  // A token's name spells its characters, unless the token stands for others: the unknown one, and
  // bytes without a token of their own.
  const auto stands_for_others = [this](std::int32_t id, std::string_view name) {
    return id == unknown_ || name.empty() || name.starts_with(kFallbackStart);
  };
  if (stands_for_others(a, left) || stands_for_others(b, right)) {
    cuts_at_spaces_ = false;
    return;
  }
  for (std::size_t at = 1; (at = result.find(space_, at)) != result.npos; ++at) {
    before_space_.emplace(last_character(std::string_view(result).substr(0, at)));
  }
}

std::int32_t BytePairs::number_of(const TokenizerFields& model, std::string_view name) const {
  const auto id = find(name);
  if (!id) model.refuse("a merge names \"{}\", which the vocabulary does not have", name);
  return *id;
}

// Returns where the first part of `word` ends that can be encoded alone, as no merge crosses its
// end: before a space, unless merges join a space with the character before it.
std::size_t BytePairs::next_cut(std::string_view word) const {
  if (!cuts_at_spaces_) return word.size();
  for (std::size_t at = 1; (at = word.find(space_, at)) != word.npos; ++at) {
    if (!before_space_.contains(last_character(word.substr(0, at)))) return at;
  }
  return word.size();
}

void BytePairs::encode(std::string_view word, Cache& cache, std::vector<std::int32_t>& out) const {
  while (!word.empty()) {
    const std::size_t end = next_cut(word);
    encode_part(word.substr(0, end), cache, out);
    word.remove_prefix(end);
  }
}

void BytePairs::encode_part(std::string_view part, Cache& cache,
                            std::vector<std::int32_t>& out) const {
  if (const auto found = cache.words.find(part); found != cache.words.end()) {
    const auto begin = cache.tokens.begin() + static_cast<std::ptrdiff_t>(found->second.begin);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(found->second.count));
    return;
  }
  std::vector<std::int32_t> tokens;
  const auto whole =
      ignores_merges_ ? find(is_byte_level_ ? in_alphabet(part) : std::string(part)) : std::nullopt;
  if (whole) {
    tokens.push_back(*whole);
  } else {
    tokens = tokens_of(part);
    merge_all(tokens);
  }
  out.insert(out.end(), tokens.begin(), tokens.end());
  if (part.size() > kMostCachedBytes || cache.words.size() == kMostCachedWords) return;
  cache.words.emplace(part, Cache::Range{cache.tokens.size(), tokens.size()});
  cache.tokens.insert(cache.tokens.end(), tokens.begin(), tokens.end());
}

// Returns the tokens before merging. The unknown token is added only at the next known character,
// so that a run of unknown ones can become one token; characters written as bytes do not end a run.
std::vector<std::int32_t> BytePairs::tokens_of(std::string_view part) const {
  std::vector<std::int32_t> out;
  bool waits = false;
  while (!part.empty()) {
    const auto character = is_byte_level_ ? part.substr(0, 1) : first_character(part);
    part.remove_prefix(character.size());
    const auto byte_token = [this](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
    const bool has_bytes =
        std::ranges::all_of(character, [&](char c) { return byte_token(c) >= 0; });
    const auto whole = is_byte_level_ ? std::nullopt : find(character);
    if (whole || (is_byte_level_ && has_bytes)) {
      if (std::exchange(waits, false)) out.push_back(*unknown_);
      out.push_back(whole ? *whole : byte_token(character[0]));
    } else if (has_byte_fallback_ && has_bytes) {
      std::ranges::transform(character, std::back_inserter(out), byte_token);
    } else if (!unknown_) {
      fail_input("tokenizer"_field, "\"{}\" has no token, and there is none for unknown text",
                 escaped(character));
    } else {
      if (waits && !fuses_unknown_) out.push_back(*unknown_);
      waits = true;
    }
  }
  if (waits) out.push_back(*unknown_);
  return out;
}

const BytePairs::Merge* BytePairs::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// Applies all merges, the lowest rank first. Keeps a list of neighbours and a heap of the merges
// that were possible when they were pushed, and passes over those that no longer are.
void BytePairs::merge_all(std::vector<std::int32_t>& tokens) const {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  constexpr std::int32_t kGone = -1;
  if (tokens.size() >= kNone) fail_input("tokenizer"_field, "a word of {} tokens", tokens.size());
  const auto count = static_cast<std::uint32_t>(tokens.size());
  std::vector<std::uint32_t> before(count), after(count);
  std::vector<Candidate> heap;
  const auto consider = [&](std::uint32_t at) {
    if (const Merge* merge = merge_of(tokens[at], tokens[after[at]])) {
      heap.push_back({merge->rank, at, merge->result});
      std::ranges::push_heap(heap, std::greater());
    }
  };
  for (std::uint32_t at = 0; at < count; ++at) {
    before[at] = at == 0 ? kNone : at - 1;
    after[at] = at + 1 == count ? kNone : at + 1;
    if (after[at] != kNone) consider(at);
  }
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater());
    const Candidate best = heap.back();
    heap.pop_back();
    const std::uint32_t right = tokens[best.at] == kGone ? kNone : after[best.at];
    if (right == kNone) continue;
    const Merge* merge = merge_of(tokens[best.at], tokens[right]);
    if (merge == nullptr || merge->rank != best.rank) continue;
    tokens[best.at] = best.result;
    tokens[right] = kGone;
    after[best.at] = after[right];
    if (after[right] != kNone) {
      before[after[right]] = best.at;
      consider(best.at);
    }
    if (before[best.at] != kNone) consider(before[best.at]);
  }
  std::erase(tokens, kGone);
}

}  // namespace tracestep
