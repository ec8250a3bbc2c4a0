#include "cli/request.h"

#include <algorithm>

#include "cli/command.h"

namespace tracestep::cli {

Request::Request(std::span<const std::string> words) {
  if (words.empty()) return;
  command_ = words[0];
  const std::vector<Command>& commands = all_commands();
  const auto command = std::ranges::find(commands, command_, &Command::name);
  const OptionSet none;
  line_ = read_command_line(command == commands.end() ? none : command->options, words.subspan(1));
}

const CommandLine::Part* Request::find(std::string_view flag) const {
  const auto found = std::ranges::find(line_.parts, flag, &CommandLine::Part::flag);
  return found == line_.parts.end() ? nullptr : &*found;
}

std::optional<std::string> Request::value(std::string_view flag) const {
  const CommandLine::Part* part = find(flag);
  if (part == nullptr || part->values.size() != 1) return {};
  return part->values.front();
}

void Request::drop(std::string_view flag) {
  std::erase_if(line_.parts, [&](const auto& part) { return part.flag == flag; });
}

void Request::set(std::string_view flag, std::string value) {
  const auto found = std::ranges::find(line_.parts, flag, &CommandLine::Part::flag);
  if (found == line_.parts.end()) {
    line_.parts.push_back({std::string(flag), {std::move(value)}});
  } else {
    found->values = {std::move(value)};
  }
}

Words Request::words() const {
  Words out{command_};
  for (const CommandLine::Part& part : line_.parts) {
    for (std::string& word : words_of_part(part)) out.push_back(std::move(word));
  }
  if (!line_.behind.empty()) out.emplace_back("--");
  out.insert(out.end(), line_.behind.begin(), line_.behind.end());
  return out;
}

Words Request::sorted_words() const {
  Request sorted = *this;
  std::ranges::stable_sort(sorted.line_.parts, {}, &CommandLine::Part::flag);
  return sorted.words();
}

}  // namespace tracestep::cli
