#include "cli/syntax.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/shell_words.h"

namespace tracestep::cli {
namespace {

constexpr std::string_view kMark = "--";  // ends the flags

// The option that a word names, and the value that stands in the word.
struct Named {
  const Option* option = nullptr;
  std::optional<std::string> value = {};
};

Named named_by(const OptionSet& options, const std::string& word) {
  const std::size_t equals = word.find('=');
  Named out{options.find(word.substr(0, equals))};
  if (equals != std::string::npos) out.value = word.substr(equals + 1);
  const bool is_short = word.size() > 2 && word[0] == '-' && word[1] != '-';
  if (out.option == nullptr && is_short) return {options.find(word.substr(0, 2)), word.substr(2)};
  return out;
}

bool is_flag(const OptionSet& options, const std::string& word) {
  return word == kMark || asks_for_help(word) || named_by(options, word).option != nullptr;
}

// Fails for a missing value. `next`: the flag that stands in its place; empty: the line ends.
[[noreturn]] void fail_missing(const Option& option, const std::string& next) {
  std::string hint = fmt::format("give {} {}", option.flag, option.value_name);
  if (!next.empty()) {
    hint += fmt::format("; if {} is meant, write {}", next, shell_quoted(option.flag + "=" + next));
  }
  throw Error(ErrorCode::kUsage, option.flag, "the value is missing", hint);
}

// Reads one option with its values, the first of which may be in its own word.
class PartReader {
 public:
  PartReader(const OptionSet& options, std::span<const std::string> words)
      : options_(options), words_(words) {}

  bool is_done() const { return at_ == words_.size(); }
  const std::string& word() const { return words_[at_]; }
  std::span<const std::string> rest() const { return words_.subspan(at_); }
  CommandLine::Part next() {
    const Named named = named_by(options_, words_[at_]);
    if (named.option == nullptr) return {{}, {words_[at_++]}};
    ++at_;
    return option_with_values(*named.option, named.value);
  }

 private:
  CommandLine::Part option_with_values(const Option& option,
                                       const std::optional<std::string>& value) {
    CommandLine::Part out{option.flag};
    if (value && option.max_values == 0) fail_usage(option.flag, "it takes no value");
    if (value) out.values.push_back(*value);
    while (std::ssize(out.values) < option.max_values && has_value(option, out.values.size())) {
      out.values.push_back(words_[at_++]);
    }
    if (option.max_values > 0 && out.values.empty()) fail_missing(option, is_done() ? "" : word());
    if (std::ranges::find(out.values, "") != out.values.end()) {
      fail_usage(option.flag, "the value is empty");
    }
    return out;
  }

  // True if the next word is a value: no flag, and with "-" only if the option needs more values.
  bool has_value(const Option& option, std::size_t count) const {
    if (is_done() || is_flag(options_, word())) return false;
    return std::cmp_less(count, option.min_values) || !word().starts_with("-");
  }

  const OptionSet& options_;
  const std::span<const std::string> words_;
  std::size_t at_ = 0;
};

}  // namespace

CommandLine read_command_line(const OptionSet& options, std::span<const std::string> words) {
  CommandLine out;
  PartReader reader(options, words);
  while (!reader.is_done()) {
    if (reader.word() == kMark) {
      const auto behind = reader.rest().subspan(1);
      out.behind.assign(behind.begin(), behind.end());
      break;
    }
    out.parts.push_back(reader.next());
  }
  return out;
}

Words words_of_part(const CommandLine::Part& part) {
  if (part.flag.empty()) return part.values;
  const bool is_plain = std::ranges::none_of(
      part.values, [](const std::string& value) { return value.starts_with("-"); });
  Words out;
  if (is_plain) {
    out.push_back(part.flag);
    out.insert(out.end(), part.values.begin(), part.values.end());
  } else {
    for (const std::string& value : part.values) out.push_back(part.flag + "=" + value);
  }
  return out;
}

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

}  // namespace tracestep::cli
