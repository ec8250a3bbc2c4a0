#include "cli/flag_words.h"

#include <algorithm>

#include "cli/command.h"

namespace tracestep::cli {
namespace {

// An option as it is given, or a word that belongs to none.
struct Part {
  std::string flag;  // empty: none
  std::size_t begin = 0, end = 0;
  bool is_joined = false;  // "--flag=value"
};

std::vector<Part> parts_of(std::span<const std::string> words) {
  const std::vector<Command>& commands = all_commands();
  const auto command =
      words.empty() ? commands.end() : std::ranges::find(commands, words[0], &Command::name);
  std::vector<Part> out;
  for (std::size_t i = 0; i < words.size(); i = out.back().end) {
    Part part{.flag = {}, .begin = i, .end = i + 1};
    if (command != commands.end()) {
      const std::string flag = words[i].substr(0, words[i].find('='));
      const auto& options = command->options.options();
      const auto option = std::ranges::find(options, flag, &Option::flag);
      if (option != options.end()) {
        part.flag = flag;
        const std::size_t with_equals = flag.size() + 1;  // alone, the value is the next word
        part.is_joined = words[i].size() > with_equals;
        // The least number of values is taken whatever they look like.
        const int more = option->min_values - (part.is_joined ? 1 : 0);
        part.end = std::min(words.size(), part.end + static_cast<std::size_t>(std::max(0, more)));
      }
    }
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace

Words without_flags(std::span<const std::string> words, std::span<const std::string> dropped) {
  Words out;
  for (const Part& part : parts_of(words)) {
    if (!part.flag.empty() && std::ranges::find(dropped, part.flag) != dropped.end()) continue;
    const auto kept = words.subspan(part.begin, part.end - part.begin);
    out.insert(out.end(), kept.begin(), kept.end());
  }
  return out;
}

bool has_flag(std::span<const std::string> words, const std::string& flag) {
  return std::ranges::any_of(parts_of(words), [&](const Part& part) { return part.flag == flag; });
}

std::optional<ValuePlace> value_place(std::span<const std::string> words, const std::string& flag) {
  for (const Part& part : parts_of(words)) {
    if (part.flag != flag) continue;
    if (part.is_joined) return ValuePlace{part.begin, flag.size() + 1};
    if (part.end == part.begin + 2) return ValuePlace{part.begin + 1, 0};
  }
  return {};
}

Words flag_with_value(std::span<const std::string> words, const std::string& flag) {
  const auto place = value_place(words, flag);
  if (!place) return {};
  return {flag, words[place->word].substr(place->begin)};
}

}  // namespace tracestep::cli
