#include "tokens/documents.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "base/reading_progress.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostNamed = 3;  // broken rows

bool has_rows(const std::filesystem::path& path) {
  const std::string kind = path.extension().string();
  return kind == ".jsonl" || kind == ".ndjson" || kind == ".json";
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kInput, "row", why);
}

const std::string& text_in(const Json& row, std::string_view name) {
  const Json* found = row.find(name);
  if (found == nullptr || !found->is_string()) refuse(fmt::format("\"{}\" is no text", name));
  return found->as_string();
}

// A document as text, before it is encoded.
struct Document {
  MarkedText marked;
  bool has_bounds = true;  // the tokenizer's start, and the end of a text
};

Document conversation_of(const Json& messages, const DocumentOptions& options) {
  if (options.chat == nullptr) refuse("messages, and no chat template is chosen");
  if (!messages.is_array()) refuse("\"messages\" is no list");
  std::vector<ChatMessage> all;
  for (const Json& message : messages.items()) {
    if (!message.is_object()) refuse("a message is no object");
    all.push_back({text_in(message, "role"), text_in(message, "content")});
  }
  return {rendered(*options.chat, all), false};
}

Document document_of(const Json& row, const DocumentOptions& options) {
  if (!row.is_object()) refuse("it is no object");
  if (const Json* messages = row.find("messages")) return conversation_of(*messages, options);
  Document out;
  if (row.find("text") != nullptr) {
    out.marked.add(text_in(row, "text"), true);
  } else if (row.find("prompt") != nullptr) {
    out.marked.add(text_in(row, "prompt"), false);
    out.marked.add(text_in(row, "completion"), true);
  } else {
    refuse("it has neither text nor messages nor prompt and completion");
  }
  return out;
}

// Reads all documents of a source as tokens, one document after the other.
class Reader {
 public:
  Reader(const TextSource& source, const DocumentOptions& options, const Tokenizer& tokenizer)
      : source_(source),
        options_(options),
        tokenizer_(tokenizer),
        progress_("reading documents", std::ssize(source.text)) {}

  DocumentSet read() {
    for (std::size_t i = 0; i < source_.files.size(); ++i) {
      const auto [begin, end] = source_.bounds[i];
      const auto file = std::string_view(source_.text).substr(begin, end - begin);
      if (has_rows(source_.files[i])) {
        add_rows(source_.files[i].string(), file);
      } else {
        Document whole;
        whole.marked.add(file, true);
        add(whole);
      }
    }
    check_broken();
    if (begins_.empty()) {
      fail_input("data"_field, "there is no document in {}", source_.files.front().string());
    }
    DocumentSet out{.documents = std::ssize(begins_), .broken = broken_};
    out.words = fmt::format("{} documents{}", out.documents, words_of_broken());
    out.tokens =
        memory_documents(source_.files.front().string(), std::move(tokens_), std::move(begins_));
    return out;
  }

 private:
  void add_rows(const std::string& name, std::string_view file) {
    const std::size_t first = file.find_first_not_of(" \t\r\n");
    const bool is_array = first != file.npos && file[first] == '[' && name.ends_with(".json");
    if (is_array) return add_items(name, file);
    std::int64_t number = 0;
    while (!file.empty()) {
      const std::size_t end = std::min(file.find('\n'), file.size());
      const std::string_view line = file.substr(0, end);
      file.remove_prefix(std::min(end + 1, file.size()));
      ++number;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      add_row(fmt::format("{}:{}", name, number),
              [&] { add(document_of(Json::parse(line, "row"), options_)); });
      progress_.update(file.data() - source_.text.data());
    }
  }

  // Reads rows from a file that is a single array.
  void add_items(const std::string& name, std::string_view file) {
    Json all;
    try {
      all = Json::parse(file, name);
    } catch (const Error& error) {
      throw Error(ErrorCode::kInput, "data"_field,
                  fmt::format("{} begins as an array: {}", name, error.message()),
                  "give JSON lines, an object a line, or one whole array of objects");
    }
    for (std::size_t i = 0; i < all.items().size(); ++i) {
      add_row(fmt::format("{}[{}]", name, i), [&] { add(document_of(all.items()[i], options_)); });
    }
  }

  void add_row(const std::string& place, const std::function<void()>& read) {
    ++rows_;
    try {
      read();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInput) throw;
      ++broken_;
      if (named_.size() >= kMostNamed) return;
      named_.push_back(fmt::format("{}: {}", place, error.text()));
    }
  }

  // Returns how many tokens of `ids`, the encoded `text`, lie before byte `end`: those that
  // encoding text[0, end) alone gives, too. A token across `end` is not counted.
  std::size_t tokens_before(std::string_view text, std::size_t end,
                            std::span<const std::int32_t> ids) const {
    if (end == 0) return 0;
    if (end == text.size()) return ids.size();
    const std::vector<std::int32_t> first = tokenizer_.encode(text.substr(0, end));
    return static_cast<std::size_t>(std::ranges::mismatch(first, ids).in1 - first.begin());
  }

  void add(const Document& document) {
    const std::string& text = document.marked.text;
    const std::vector<std::int32_t> ids = tokenizer_.encode(text);
    std::vector<std::int32_t> out;
    const std::size_t ends = document.has_bounds ? options_.end.size() : 0;
    if (document.has_bounds) out = tokenizer_.start();
    const std::size_t first = out.size();
    for (const std::int32_t id : ids) out.push_back(static_cast<std::int32_t>(untrained(id)));
    bool counts = false;
    for (const auto [begin, end] : document.marked.trained) {
      const std::size_t last = tokens_before(text, end, ids);
      for (std::size_t i = tokens_before(text, begin, ids); i < last; ++i) {
        out[first + i] = ids[i];
        counts = true;
      }
    }
    if (!counts) refuse("nothing in it counts");
    if (ends > 0) out.insert(out.end(), options_.end.begin(), options_.end.end());
    if (out.size() < 2) refuse("it has one token");
    begins_.push_back(std::ssize(tokens_));
    tokens_.insert(tokens_.end(), out.begin(), out.end());
  }

  std::string words_of_broken() const {
    if (broken_ == 0) return "";
    const std::int64_t more = broken_ - std::ssize(named_);
    return fmt::format(", {} of {} rows broken: {}{}", broken_, rows_, fmt::join(named_, "; "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }

  void check_broken() const {
    const auto most = options_.most_broken * static_cast<double>(rows_);
    if (static_cast<double>(broken_) <= most) return;
    throw Error(ErrorCode::kInput, "data"_field,
                fmt::format("{:.3g} % of the rows may be broken{}", 100 * options_.most_broken,
                            words_of_broken()),
                "mend them, or give a larger " TRACESTEP_OPTION(broken_rows));
  }

  const TextSource& source_;
  const DocumentOptions& options_;
  const Tokenizer& tokenizer_;
  ReadingProgress progress_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> begins_;
  std::int64_t rows_ = 0, broken_ = 0;
  std::vector<std::string> named_;
};

}  // namespace

DocumentSet read_documents(const TextSource& source, const DocumentOptions& options,
                           const Tokenizer& tokenizer) {
  return Reader(source, options, tokenizer).read();
}

}  // namespace tracestep
