// Byte-pair encoding by a list of merges: a word becomes characters or bytes, then neighbours
// become one token, the earliest merge of the list first. Source: Sennrich et al. 2016, arXiv
// 1508.07909.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokens/tokenizer_fields.h"

namespace tracestep {

// Lets a map with string keys be searched by views, without a copy of the key.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

// The bytes of a text in GPT-2's alphabet, in which each character stands for a byte; nullopt: it
// has other characters.
std::optional<std::string> bytes_of_alphabet(std::string_view text);
// Spells each byte as the character that stands for it in GPT-2's alphabet.
std::string in_alphabet(std::string_view bytes);

class BytePairs {
 public:
  // How texts were prepared before encoding: as bytes or as characters, and with which character
  // for a space.
  struct Text {
    bool is_byte_level = false;
    std::string space;
  };

  // Reads the component `model` of a tokenizer.json. Errors: kInput.
  BytePairs(const TokenizerFields& model, Text text);

  // The number of tokens, without unused numbers.
  std::int32_t vocab_count() const { return vocab_count_; }
  // The number of the token with this name in the file; nullopt: there is none.
  std::optional<std::int32_t> find(std::string_view name) const;
  // The token for characters that have no token; nullopt: every character has one, or an unknown
  // one is an error.
  std::optional<std::int32_t> unknown() const { return unknown_; }
  // The bytes that a token with this name stands for.
  std::string text_of(std::string_view name) const;
  // Moves out the bytes that each token stands for, by its number; nullopt: there is no such token.
  std::vector<std::optional<std::string>> take_texts() { return std::move(texts_); }

  // Remembers the tokens of words, because words repeat in a text. Each thread has its own.
  struct Cache {
    struct Range {
      std::size_t begin, count;
    };
    TextMap<Range> words;
    std::vector<std::int32_t> tokens;
  };
  // Adds the tokens of `word`, valid UTF-8, to `out`. O(n log n) in its bytes. Errors: kInput for a
  // character that has no token in a vocabulary without one for unknown text.
  void encode(std::string_view word, Cache& cache, std::vector<std::int32_t>& out) const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t result;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const {
      return static_cast<std::size_t>((pair * 0x9e3779b97f4a7c15u) >> 16);
    }
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32u | static_cast<std::uint64_t>(right);
  }

  void read_vocab(const TokenizerFields& model);
  void read_merges(const TokenizerFields& model);
  void add_merge(const TokenizerFields& model, std::string_view left, std::string_view right);
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  std::int32_t number_of(const TokenizerFields& model, std::string_view name) const;

  std::size_t next_cut(std::string_view word) const;
  void encode_part(std::string_view part, Cache& cache, std::vector<std::int32_t>& out) const;
  std::vector<std::int32_t> tokens_of(std::string_view part) const;
  void merge_all(std::vector<std::int32_t>& tokens) const;

  bool is_byte_level_, has_byte_fallback_, fuses_unknown_, ignores_merges_;
  std::string space_;
  TextMap<std::int32_t> numbers_;
  std::vector<std::optional<std::string>> texts_;
  std::int32_t vocab_count_ = 0;
  std::array<std::int32_t, 256> byte_tokens_;  // The token of each single byte; -1: there is none.
  std::optional<std::int32_t> unknown_;
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
  std::uint32_t next_rank_ = 0;
  // Characters that a merge joins with a following space, so that words are not cut between them.
  std::unordered_set<std::string, TextHash, std::equal_to<>> before_space_;
  bool cuts_at_spaces_ = false;
};

}  // namespace tracestep
