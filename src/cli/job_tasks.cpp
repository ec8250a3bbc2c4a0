#include "cli/job_tasks.h"

#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "cli/option_set.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char *kFile = "tasks.json", *kSchema = "tracestep.tasks/1";
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

Json json_of(const Words& words) {
  Json out = Json::array();
  for (const std::string& word : words) out.push_back(word);
  return out;
}

Words words_of(const Json& json) {
  Words out;
  for (const Json& word : json.items()) out.push_back(word.as_string());
  return out;
}

}  // namespace

JobTasks divide(Words command, std::span<const std::string> flags) {
  JobTasks out{.command = std::move(command), .divided = {}, .tasks = {}};
  out.tasks = {out.command};
  for (const std::string& flag : flags) {
    const auto place = value_place(out.command, flag);
    if (!place) continue;
    const std::vector<std::string> values =
        split_list(flag, std::string_view(out.command[place->word]).substr(place->begin));
    if (values.size() == 1) continue;
    out.divided.push_back(flag);
    std::vector<Words> next;
    for (const Words& task : out.tasks) {
      for (const std::string& value : values) {
        next.push_back(task);
        std::string& word = next.back()[place->word];
        word = word.substr(0, place->begin) + value;
      }
    }
    out.tasks = std::move(next);
  }
  return out;
}

std::string JobTasks::label(std::size_t task) const {
  std::string out;
  for (const std::string& flag : divided) {
    const ValuePlace place = *value_place(command, flag);
    out += (out.empty() ? "" : " ") + tasks[task][place.word].substr(place.begin);
  }
  return out;
}

void write_tasks(const fs::path& folder, const JobTasks& tasks) {
  Json json = Json::object();
  json["schema"] = kSchema;
  json["command"] = json_of(tasks.command);
  json["divided"] = json_of(tasks.divided);
  json["tasks"] = Json::array();
  for (const Words& task : tasks.tasks) json["tasks"].push_back(json_of(task));
  write_file(folder / kFile, json.dump(1) + "\n");
}

JobTasks read_tasks(const fs::path& folder) {
  const Json json = Json::parse(read_text_file(folder / kFile, kFile, kMostBytes), kFile);
  const Json* schema = json.is_object() ? json.find("schema") : nullptr;
  if (schema == nullptr || !(*schema == Json(kSchema))) {
    fail_input(kFile, "it is no list of tasks: its schema is not {}", kSchema);
  }
  JobTasks out{words_of(json.at("command")), words_of(json.at("divided")), {}};
  for (const Json& task : json.at("tasks").items()) {
    out.tasks.push_back(words_of(task));
    if (out.tasks.back().size() == out.command.size()) continue;
    fail_input(kFile, "task {} is no part of the command", out.tasks.size() - 1);
  }
  for (const std::string& flag : out.divided) {
    if (!value_place(out.command, flag)) fail_input(kFile, "{} is not in the command", flag);
  }
  return out;
}

fs::path result_path(const fs::path& folder, std::size_t task) {
  return folder / "cells" / fmt::format("{}.json", task);
}

bool is_done(const fs::path& folder, std::size_t task) {
  std::error_code error;
  return fs::exists(folder / "cells" / fmt::format("{}.done", task), error);
}

}  // namespace tracestep::cli
