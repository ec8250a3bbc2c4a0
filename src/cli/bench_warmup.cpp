#include "cli/bench_warmup.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "lab/time/tables.h"

namespace tracestep::cli {
namespace {

// Each names something that a process gets of its own. All take one value.
constexpr std::array<std::string_view, 13> kOwn = {
    "--warmup-study", "--warmup",  "--format",   "--output",    "--resume",
    "--size",         "--context", "--mode",     "--precision", "--ops",
    "--max-noise",    "--roof",    "--attention"};

std::vector<std::string> arguments_of(const GridCell& cell, std::int64_t warmup,
                                      std::span<const std::string> arguments) {
  std::vector<std::string> out = without_flags(arguments, kOwn);
  const auto add = [&out](std::string flag, std::string value) {
    out.push_back(std::move(flag));
    out.push_back(std::move(value));
  };
  if (cell.step.model.name != "custom") add("--size", cell.step.model.name);
  add("--context", std::to_string(cell.step.shape.context));
  add("--mode", std::string(name_of(cell.step.mode)));
  add("--precision", cell.precision);
  add("--ops", std::string(name_of(cell.step.ops)));
  add("--attention", std::string(name_of(cell.step.attention)));
  add("--warmup", std::to_string(warmup));
  add("--roof", "0");
  add("--format", "json");
  return out;
}

// A process says why it failed in its last line.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it said nothing";
  const std::size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

ResultRow fresh_row(const GridCell& cell, std::int64_t warmup,
                    std::span<const std::string> arguments) {
  const ProcessResult run = run_self(arguments_of(cell, warmup, arguments));
  if (run.status != 0 && run.status != exit_code(ErrorCode::kOutOfMemory)) {
    throw Error(ErrorCode::kFailed, "--warmup-study",
                fmt::format("a process of its own ended with status {}: {}", run.status,
                            last_line(run.err)));
  }
  const Json result = Json::parse(run.out, "a process of the warm-up study");
  return ResultRow(result.at("rows").items().at(0), result.at("environment"));
}

}  // namespace

std::vector<std::string> without_flags(std::span<const std::string> arguments,
                                       std::span<const std::string_view> dropped) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string_view flag = std::string_view{word}.substr(0, word.find('='));
    if (std::ranges::find(dropped, flag) == dropped.end()) {
      out.push_back(word);
    } else if (flag.size() == word.size()) {
      ++i;  // its value
    }
  }
  return out;
}

Table warmup_study(const std::vector<GridCell>& cells, const std::vector<std::int64_t>& warmups,
                   std::span<const std::string> arguments, const StopSignal* stop) {
  std::vector<ResultRow> rows;
  ProgressLine progress;
  const std::size_t total = cells.size() * warmups.size();
  for (const GridCell& cell : cells) {
    for (std::int64_t warmup : warmups) {
      if (stop != nullptr && stop->requested()) return warmup_table(rows);
      progress.update(fmt::format("{}/{}  {} context {} {}, {} warm-up steps, a new process",
                                  rows.size() + 1, total, cell.step.model.name,
                                  cell.step.shape.context, name_of(cell.step.mode), warmup));
      rows.push_back(fresh_row(cell, warmup, arguments));
    }
  }
  return warmup_table(rows);
}

}  // namespace tracestep::cli
