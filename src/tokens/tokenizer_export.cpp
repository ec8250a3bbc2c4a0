#include "tokens/tokenizer_export.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "tokens/byte_pairs.h"

namespace tracestep {
namespace {

constexpr const char* kSpaceMark = "\u2581";

Json component(const char* type) {
  Json out = Json::object();
  out["type"] = type;
  return out;
}

Json byte_level() {
  Json out = component("ByteLevel");
  out["add_prefix_space"] = false;
  out["trim_offsets"] = true;
  out["use_regex"] = false;
  return out;
}

Json replacement(const char* pattern, const char* content) {
  Json out = component("Replace");
  out["pattern"] = Json::Object{{"String", pattern}};
  out["content"] = content;
  return out;
}

Json pair_model(bool has_byte_fallback, Json::Object vocab, Json::Array merges) {
  Json out = component("BPE");
  for (const char* name :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    out[name] = Json();
  }
  out["fuse_unk"] = false;
  out["byte_fallback"] = has_byte_fallback;
  out["ignore_merges"] = false;
  out["vocab"] = std::move(vocab);
  out["merges"] = std::move(merges);
  return out;
}

Json file_of(Json added_tokens, Json normalizer, Json pre_tokenizer, Json decoder, Json model) {
  Json out = Json::object();
  out["version"] = "1.0";
  out["truncation"] = Json();
  out["padding"] = Json();
  out["added_tokens"] = std::move(added_tokens);
  out["normalizer"] = std::move(normalizer);
  out["pre_tokenizer"] = std::move(pre_tokenizer);
  out["post_processor"] = Json();
  out["decoder"] = std::move(decoder);
  out["model"] = std::move(model);
  return out;
}

Json kept_apart(std::int64_t id, const std::string& text) {
  return Json::Object{{"id", id},        {"content", text}, {"single_word", false},
                      {"lstrip", false}, {"rstrip", false}, {"normalized", false},
                      {"special", false}};
}

// Adds to `out` the pairs of known pieces that make `piece`, longest left part first: the library
// merges the list's earliest pair first, where pieces of equal rank go from left to right.
void add_merges(std::string_view piece, const TextMap<bool>& known, Json::Array& out) {
  for (std::size_t cut = piece.size() - 1; cut > 0; --cut) {
    const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
    if (!known.contains(left) || !known.contains(right)) continue;
    out.emplace_back(Json::Array{std::string(left), std::string(right)});
  }
}

}  // namespace

std::string tokenizer_json_of_bytes() {
  Json::Object vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocab.emplace_back(in_alphabet({&c, 1}), byte);
  }
  return file_of(Json::array(), Json(), byte_level(), byte_level(),
                 pair_model(false, std::move(vocab), {}))
             .dump(2) +
         "\n";
}

std::string tokenizer_json_of_pieces(std::span<const VocabPiece> pieces) {
  TextMap<bool> known;
  for (const VocabPiece& piece : pieces) {
    if (piece.is_merged) known[piece.text] = true;
  }
  Json::Object vocab;
  Json::Array merges, added;
  std::int64_t id = 0;
  for (const VocabPiece& piece : pieces) {
    vocab.emplace_back(piece.text, id);
    if (piece.is_merged) add_merges(piece.text, known, merges);
    if (piece.is_kept_apart) added.push_back(kept_apart(id, piece.text));
    ++id;
  }
  Json decoder = component("Sequence");
  decoder["decoders"] =
      Json::Array{replacement(kSpaceMark, " "), component("ByteFallback"), component("Fuse")};
  return file_of(std::move(added), replacement(" ", kSpaceMark), Json(), std::move(decoder),
                 pair_model(true, std::move(vocab), std::move(merges)))
             .dump(2) +
         "\n";
}

std::string tokenizer_config_json() {
  Json out = Json::object();
  out["tokenizer_class"] = "PreTrainedTokenizerFast";
  out["clean_up_tokenization_spaces"] = false;
  return out.dump(2) + "\n";
}

}  // namespace tracestep
