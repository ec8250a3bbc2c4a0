#include "cli/request.h"

#include <algorithm>

#include "cli/command.h"
#include "spec/fields.h"

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

Division divide(const Request& request, std::span<const std::string> flags) {
  Division out{.flags = {}, .parts = {request}};
  for (const std::string& flag : flags) {
    const std::optional<std::string> list = request.value(flag);
    if (!list) continue;
    const std::vector<std::string> values = split_list(flag, *list);
    if (values.size() == 1) continue;
    out.flags.push_back(flag);
    std::vector<Request> next;
    for (const Request& part : out.parts) {
      for (const std::string& value : values) {
        next.push_back(part);
        next.back().set(flag, value);
      }
    }
    out.parts = std::move(next);
  }
  return out;
}

std::string Division::label(std::size_t part) const {
  std::string out;
  for (const std::string& flag : flags) {
    out += (out.empty() ? "" : " ") + parts[part].value(flag).value_or("");
  }
  return out;
}

std::string column_of_flag(const std::string& flag) {
  for (const RunField& field : run_fields()) {
    if (field.flag == flag) return field.name;
  }
  std::string out = flag.substr(flag.find_first_not_of('-'));
  std::ranges::replace(out, '-', '_');
  return out;
}

}  // namespace tracestep::cli
