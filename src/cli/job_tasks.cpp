#include "cli/jobs.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char *kFile = "tasks.json", *kTasksSchema = "tracestep.tasks/1";
constexpr std::uint64_t kMostTaskBytes = std::uint64_t{64} << 20;

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

void write_tasks(const fs::path& folder, const JobTasks& tasks) {
  Json json = Json::object();
  json["schema"] = kTasksSchema;
  json["command"] = json_of(tasks.command.words());
  json["divided"] = json_of(tasks.division.flags);
  json["tasks"] = Json::array();
  for (const Request& task : tasks.division.parts) json["tasks"].push_back(json_of(task.words()));
  write_file(folder / kFile, json.dump(1) + "\n");
}

JobTasks read_tasks(const fs::path& folder) {
  const Json json = Json::parse(read_text_file(folder / kFile, kFile, kMostTaskBytes), kFile);
  const Json* schema = json.is_object() ? json.find("schema") : nullptr;
  if (schema == nullptr || !(*schema == Json(kTasksSchema))) {
    fail_input(kFile, "it is no list of tasks: its schema is not {}", kTasksSchema);
  }
  JobTasks out{Request(words_of(json.at("command"))), {words_of(json.at("divided")), {}}};
  for (const Json& task : json.at("tasks").items()) {
    out.division.parts.emplace_back(words_of(task));
    const Request& part = out.division.parts.back();
    const auto lacks = [&](const std::string& flag) { return !part.value(flag); };
    if (part.command() == out.command.command() && std::ranges::none_of(out.division.flags, lacks))
      continue;
    fail_input(kFile, "task {} is no part of the command", out.division.parts.size() - 1);
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
