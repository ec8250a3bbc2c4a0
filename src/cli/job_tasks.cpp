#include "cli/jobs.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "lab/compare/result_file.h"
#include "lab/pages/page.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char *kFile = "tasks.json", *kTasksSchema = "tracestep.tasks/2";
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

Words JobTasks::words_of(std::size_t task) const {
  Request out = command;
  if (!cells[task].empty()) out.set("--cell", cells[task]);
  return out.words();
}

void write_tasks(const fs::path& folder, const JobTasks& tasks) {
  const Json json = Json::Object{{"schema", kTasksSchema},
                                 {"command", json_of(tasks.command.words())},
                                 {"tasks", json_of(tasks.cells)}};
  write_file(folder / kFile, json.dump(1) + "\n");
}

JobTasks read_tasks(const fs::path& folder) {
  const Json json = Json::parse(read_text_file(folder / kFile, kFile, kMostTaskBytes), kFile);
  const Json* schema = json.is_object() ? json.find("schema") : nullptr;
  if (schema == nullptr || !(*schema == Json(kTasksSchema))) {
    fail_input(kFile, "it is no list of tasks: its schema is not {}", kTasksSchema);
  }
  return {Request(words_of(json.at("command"))), words_of(json.at("tasks"))};
}

JobRows rows_of_task(const fs::path& folder, const JobTasks& tasks, std::size_t task) {
  const std::string name = result_path(folder, task).filename().string();
  const std::string text = read_text_file(result_path(folder, task), name, kMaxResultBytes);
  JobRows out{.cells = tasks.cells[task], .rows = {}};
  for (const std::string& line : pages::split(text, "\n")) {
    if (!line.empty()) out.rows.push_back(row_of_line(line, name));
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
