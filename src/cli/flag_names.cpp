#include "cli/flag_names.h"

#include "spec/spec_field.h"

namespace tracestep::cli {
namespace {

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

std::string_view name_at(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size() && is_of_name(text[size])) ++size;
  return text.substr(0, size);
}

// The separator that `text` begins with, between two words of a list; empty: the list is over.
std::string_view separator_at(std::string_view text) {
  for (std::string_view separator : {", and ", ", or ", ", ", " and ", " or "}) {
    if (text.starts_with(separator)) return separator;
  }
  return {};
}

}  // namespace

std::string flag_of(const OptionSet& options, std::string_view field) {
  const std::string flag = "--" + with_dashes(field);
  const auto found = std::ranges::find(options.options(), flag, &Option::flag);
  return found == options.options().end() ? std::string() : flag;
}

std::string with_flags(const OptionSet& options, std::string_view text) {
  std::string out;
  const auto take = [&](std::size_t count) {
    const std::string_view taken = text.substr(0, count);
    text.remove_prefix(count);
    return taken;
  };
  while (!text.empty()) {
    const bool is_word = out.empty() || !is_of_name(out.back());
    const std::string_view lead = text.starts_with("options ")  ? "options "
                                  : text.starts_with("option ") ? "option "
                                                                : std::string_view();
    std::string flag;
    if (is_word && !lead.empty()) flag = flag_of(options, name_at(text.substr(lead.size())));
    if (flag.empty()) {
      out += take(1);
      continue;
    }
    take(lead.size());
    while (!flag.empty()) {
      take(name_at(text).size());
      out += flag;
      flag.clear();
      const std::string_view separator = separator_at(text);
      if (lead == "option " || separator.empty()) break;
      flag = flag_of(options, name_at(text.substr(separator.size())));
      if (!flag.empty()) out += take(separator.size());
    }
  }
  return out;
}

Error in_flags(const OptionSet& options, const Error& error,
               std::span<const std::string> arguments) {
  const bool is_of_file = error.code() == ErrorCode::kInput || error.code() == ErrorCode::kOutput;
  const auto names_it = [&](const std::string& word) {
    return word == error.where() || word.ends_with("=" + error.where());
  };
  const bool is_about_options = error.code() == ErrorCode::kUsage ||
                                (is_of_file && std::ranges::none_of(arguments, names_it));
  const std::string flag = is_about_options ? flag_of(options, error.where()) : std::string();
  return {error.code(), flag.empty() ? error.where() : flag, with_flags(options, error.message()),
          with_flags(options, error.hint())};
}

}  // namespace tracestep::cli
