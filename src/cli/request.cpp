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
  for (std::size_t i = 1; i < words.size();) {
    const std::size_t equals = words[i].find('=');
    const std::string flag = words[i].substr(0, equals);
    const Option* option = command == commands.end() ? nullptr : command->options.find(flag);
    if (option == nullptr) {
      parts_.push_back({{}, {words[i++]}});
      continue;
    }
    Part part{flag};
    // Behind nothing but "--flag=" the value is the next word.
    if (equals != std::string::npos && equals + 1 < words[i].size()) {
      part.values.push_back(words[i].substr(equals + 1));
    }
    ++i;
    // The least number of values is taken whatever they look like.
    const auto least = static_cast<std::size_t>(option->min_values),
               most = static_cast<std::size_t>(option->max_values);
    while (i < words.size() && part.values.size() < most &&
           (part.values.size() < least || !words[i].starts_with("--"))) {
      part.values.push_back(words[i++]);
    }
    parts_.push_back(std::move(part));
  }
}

const Request::Part* Request::find(std::string_view flag) const {
  const auto found = std::ranges::find(parts_, flag, &Part::flag);
  return found == parts_.end() ? nullptr : &*found;
}

std::optional<std::string> Request::value(std::string_view flag) const {
  const Part* part = find(flag);
  if (part == nullptr || part->values.size() != 1) return {};
  return part->values.front();
}

void Request::drop(std::string_view flag) {
  std::erase_if(parts_, [&](const Part& part) { return part.flag == flag; });
}

void Request::set(std::string_view flag, std::string value) {
  const auto found = std::ranges::find(parts_, flag, &Part::flag);
  if (found == parts_.end()) {
    parts_.push_back({std::string(flag), {std::move(value)}});
  } else {
    found->values = {std::move(value)};
  }
}

Words Request::words_of(const Part& part) {
  if (part.flag.empty()) return part.values;
  Words out{part.flag};
  out.insert(out.end(), part.values.begin(), part.values.end());
  return out;
}

Words Request::words() const {
  Words out{command_};
  for (const Part& part : parts_) {
    for (std::string& word : words_of(part)) out.push_back(std::move(word));
  }
  return out;
}

Words Request::sorted_words() const {
  Request sorted = *this;
  std::ranges::stable_sort(sorted.parts_, {}, &Part::flag);
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
