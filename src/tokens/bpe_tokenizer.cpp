// The only file that uses the SentencePiece library. Builds without it only have byte vocabularies.
#include "tokens/tokenizer_kinds.h"

#include "base/error.h"

#ifdef TRACESTEP_HAS_SENTENCEPIECE
#include <algorithm>
#include <charconv>
#include <exception>
#include <unordered_map>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "base/own_file.h"
#include "base/utf8.h"
#include "tokens/piece_rules.h"
#include "tokens/tokenizer_export.h"
#include "tokens/tokenizer_fields.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMinBpeTokens = 300, kMaxBpeTokens = 1'000'000;
constexpr std::size_t kMaxTrainingBytes = std::size_t{16} << 20;
// The size at which lines are cut for training and encoding: the library's memory grows with it.
constexpr std::size_t kMaxLineBytes = 4000;
constexpr const char* kNewline = "\n";
constexpr std::string_view kSpace = "\u2581";  // three bytes for one

// Takes the next line off `text`, its newline included; cut at kMaxLineBytes, between characters.
std::string_view take_line(std::string_view& text) {
  const std::size_t newline = text.find('\n');
  std::size_t size = newline == text.npos ? text.size() : newline + 1;
  if (size > kMaxLineBytes) {
    size = kMaxLineBytes;
    const auto continues = [&](std::size_t i) {
      return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
    };
    while (size > kMaxLineBytes - 4 && continues(size)) --size;
  }
  const std::string_view line = text.substr(0, size);
  text.remove_prefix(size);
  return line;
}

// Iterates over every k-th line, so that a long text is sampled evenly and always alike.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::string_view text)
      : rest_(text), stride_(text.size() / kMaxTrainingBytes + 1) {
    Next();
  }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    for (std::size_t i = 1; i < stride_ && !rest_.empty(); ++i) take_line(rest_);
    done_ = rest_.empty();
    if (done_) return;
    std::string_view line = take_line(rest_);
    if (line.ends_with('\n')) line.remove_suffix(1);
    line_ = line;
  }

 private:
  std::string_view rest_;
  std::size_t stride_;
  std::string line_;
  bool done_ = false;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(std::string model, const std::string& origin) : model_(std::move(model)) {
    check_piece_rules(model_, origin);
    if (!load()) fail_input("tokenizer"_field, "{} is no tokenizer file", origin);
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (const std::size_t size = processor_.IdToPiece(id).size(); size > kMostTokenBytes) {
        fail_input("tokenizer"_field, "{}: a token has {} bytes, more than {}", origin, size,
                   kMostTokenBytes);
      }
    }
    is_own_ = processor_.bos_id() < 0 && processor_.eos_id() < 0;
    cuts_at_lines_ = !is_own_ && keeps_lines_apart();
  }

  std::string name() const override { return "bpe"; }
  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }

  // Encodes the text. Models trained here encode line by line: none of their pieces spans lines.
  std::vector<std::int32_t> encode(std::string_view text) const override {
    if (!is_own_) return encode_published(with_replacements(text));
    std::vector<std::int32_t> out;
    while (!text.empty()) append_ids(take_line(text), out);
    return out;
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::vector<int> ids;
    for (std::int64_t token : tokens) {
      ids.push_back(static_cast<int>(check_token(token, vocab_size())));
    }
    std::string out;
    const auto status = processor_.Decode(ids, &out);
    if (!status.ok()) fail_input("tokenizer"_field, "decoding failed: {}", status.ToString());
    return out;
  }

  // Counts a piece's own bytes: decoded alone, it could lose a space, and a byte is no text.
  std::optional<std::int64_t> byte_count(std::int64_t token) const override {
    const int id = static_cast<int>(token);
    if (token < 0 || token >= vocab_size() || processor_.IsUnknown(id)) return std::nullopt;
    if (processor_.IsControl(id)) return 0;
    if (processor_.IsByte(id)) return 1;
    const std::string& piece = processor_.IdToPiece(id);
    std::int64_t out = std::ssize(piece);
    for (std::size_t at = 0; (at = piece.find(kSpace, at)) != piece.npos; at += kSpace.size()) {
      out -= std::ssize(kSpace) - 1;
    }
    return out;
  }

  std::vector<std::int32_t> start() const override {
    if (processor_.bos_id() < 0) return {};
    return {processor_.bos_id()};
  }

  std::string content() const override {
    // The protobuf tag and length of the mark's field; the format leaves its number to others.
    constexpr std::string_view kField = "\xca\x0c\x15";  // 201, text of 21 bytes
    static_assert(kTokenizerMark.size() == 21);
    if (model_.ends_with(kTokenizerMark)) return model_;
    return fmt::format("{}{}{}", model_, kField, kTokenizerMark);
  }

  // The model as a tokenizer.json; empty for a published model, which has a tokenizer.json beside
  // it or rules that no tokenizer.json can express.
  std::string tokenizer_json() const override {
    if (!is_own_) return {};
    std::vector<VocabPiece> pieces;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& text = processor_.IdToPiece(id);
      const bool is_text = !processor_.IsByte(id) && !processor_.IsUnknown(id) &&
                           !processor_.IsControl(id) && !processor_.IsUnused(id);
      pieces.push_back({text, is_text && text != kNewline, text == kNewline});
    }
    return tokenizer_json_of_pieces(pieces);
  }

 private:
  void append_ids(std::string_view text, std::vector<std::int32_t>& out) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) fail_input("tokenizer"_field, "encoding failed: {}", status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  // Encodes the text in parts that end before newlines, if that changes no id. The model may add a
  // space before each part, as it does before a text; all but that of the first part are removed.
  std::vector<std::int32_t> encode_published(std::string_view text) const {
    std::vector<std::int32_t> out;
    const int space = processor_.PieceToId(kSpace);
    for (bool is_first = true; !text.empty(); is_first = false) {
      const std::size_t line = std::min(text.find_first_not_of('\n'), text.size());
      const std::size_t end =
          cuts_at_lines_ ? std::min(text.find('\n', line), text.size()) : text.size();
      const std::size_t before = out.size();
      append_ids(text.substr(0, end), out);
      text.remove_prefix(end);
      if (!is_first && before < out.size() && out[before] == space) {
        out.erase(out.begin() + static_cast<std::ptrdiff_t>(before));
      }
    }
    return out;
  }

  // True if cutting text at lines changes no ids, as a probe and the pieces show: newlines survive
  // encoding, and no piece joins one with the text before it. Sets cuts_at_lines_, for the probe.
  bool keeps_lines_apart() {
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      const std::string& piece = processor_.IdToPiece(id);
      const std::size_t other = piece.find_first_not_of('\n');
      if (other != piece.npos && piece.find('\n', other) != piece.npos) return false;
    }
    const std::string probe = "a\n\nb \n c  \nd";
    cuts_at_lines_ = false;
    const auto whole = encode_published(probe);
    cuts_at_lines_ = true;
    const std::vector<std::int64_t> ids(whole.begin(), whole.end());
    return decode(ids) == probe && encode_published(probe) == whole;
  }

  // Loads the model; false if it is malformed. For some impossible pieces the library throws.
  bool load() {
    try {
      return processor_.LoadFromSerializedProto(model_).ok() && processor_.GetPieceSize() > 0;
    } catch (const std::exception&) {
      return false;
    }
  }

  // The bytes of the file: the library might write the same model in other bytes.
  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  bool is_own_ = false;  // made by train_bpe()
  bool cuts_at_lines_ = false;
};

// The options of training. Identity normalisation and byte fallback keep the text exactly; one
// thread keeps the vocabulary the same on every machine.
std::unordered_map<std::string, std::string> training_options(std::int64_t vocab_size) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"hard_vocab_limit", "false"},
          {"byte_fallback", "true"},
          {"character_coverage", "0.9999"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"add_dummy_prefix", "false"},
          {"allow_whitespace_only_pieces", "true"},  // indentation is one token
          {"split_digits", "true"},
          {"user_defined_symbols", kNewline},
          {"bos_id", "-1"},
          {"eos_id", "-1"},
          {"max_sentence_length", std::to_string(kMaxLineBytes + 1)},
          {"num_threads", "1"},
          {"minloglevel", "3"}};
}

// Throws the error of training. If the vocabulary has no room for all characters, the library says
// "... smaller than required_chars. 320 vs 337. ..."; else the failure is inside the library.
[[noreturn]] void fail_training(const std::string& message, std::int64_t vocab_size) {
  constexpr std::string_view kBefore = " vs ";
  const std::size_t at = message.find(kBefore, message.find("required_chars. "));
  std::int64_t needed = 0;
  if (at != message.npos) {
    std::from_chars(message.data() + at + kBefore.size(), message.data() + message.size(), needed);
  }
  if (needed <= vocab_size) fail_input("tokenizer"_field, "training failed: {}", message);
  throw Error(
      ErrorCode::kInput, "tokenizer"_field,
      fmt::format("a vocabulary of {} has no room for the characters of this text", vocab_size),
      fmt::format("give " TRACESTEP_OPTION(bpe_vocab) " {} or more", needed));
}

}  // namespace

bool has_bpe() {
  return true;
}

std::unique_ptr<Tokenizer> train_bpe(std::string_view text, std::int64_t vocab_size) {
  if (vocab_size < kMinBpeTokens || vocab_size > kMaxBpeTokens) {
    fail_usage("tokenizer"_field, "a vocabulary of {}; byte-pair encoding takes {} to {}",
               vocab_size, kMinBpeTokens, kMaxBpeTokens);
  }
  if (text.find_first_not_of(" \t\r\n") == text.npos) {
    fail_input("tokenizer"_field, "there is no text to train on");
  }
  Lines lines(text);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(training_options(vocab_size), &lines, &model);
  if (!status.ok()) fail_training(status.ToString(), vocab_size);
  return std::make_unique<BpeTokenizer>(model, "the trained model");
}

std::unique_ptr<Tokenizer> load_bpe(const std::string& model, const std::string& origin) {
  return std::make_unique<BpeTokenizer>(model, origin);
}

}  // namespace tracestep

#else

namespace tracestep {
namespace {

[[noreturn]] void fail_missing() {
  throw Error(ErrorCode::kUsage, "tokenizer"_field, "this build has no byte-pair encoding",
              "use bytes, or build with libsentencepiece-dev installed");
}

}  // namespace

bool has_bpe() {
  return false;
}

std::unique_ptr<Tokenizer> train_bpe(std::string_view, std::int64_t) {
  fail_missing();
}

std::unique_ptr<Tokenizer> load_bpe(const std::string&, const std::string&) {
  fail_missing();
}

}  // namespace tracestep

#endif
