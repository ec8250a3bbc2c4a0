#include "cli/bench_warmup.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "lab/time/tables.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

// The flags that select one run of a grid, and those of the measurement that each process gets
// separately. All take one value.
std::vector<std::string> own_flags() {
  std::vector<std::string> out{"--warmup-study", "--warmup",    "--format", "--output",
                               "--resume",       "--max-noise", "--roof"};
  for (const RunField& field : run_fields()) {
    if (field.is_axis) out.push_back(field.flag);
  }
  return out;
}

std::vector<std::string> arguments_of(const RunSpec& run, std::int64_t warmup,
                                      std::span<const std::string> arguments) {
  std::vector<std::string> out = without_flags(arguments, own_flags());
  for (const RunField& field : run_fields()) {
    // Empty for the size of a custom model, which is already among the arguments.
    const std::string value = default_text(field, run);
    if (field.is_axis && !value.empty()) out.insert(out.end(), {field.flag, value});
  }
  out.insert(out.end(), {"--warmup", std::to_string(warmup), "--roof", "0", "--format", "json"});
  return out;
}

// The last line of a process's output has the reason of its failure.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it said nothing";
  const std::size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

ResultRow fresh_row(const RunSpec& spec, std::int64_t warmup,
                    std::span<const std::string> arguments) {
  const ProcessResult run = run_self(arguments_of(spec, warmup, arguments));
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
                                       std::span<const std::string> dropped) {
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

Table warmup_study(const std::vector<RunSpec>& runs, const std::vector<std::int64_t>& warmups,
                   std::span<const std::string> arguments, const StopSignal* stop) {
  std::vector<ResultRow> rows;
  ProgressLine progress;
  const std::size_t total = runs.size() * warmups.size();
  for (const RunSpec& run : runs) {
    for (std::int64_t warmup : warmups) {
      if (stop != nullptr && stop->requested()) return warmup_table(rows);
      progress.update(fmt::format("{}/{}  {} context {} {}, {} warm-up steps, a new process",
                                  rows.size() + 1, total, run.model.name, run.shape.context,
                                  name_of(run.mode), warmup));
      rows.push_back(fresh_row(run, warmup, arguments));
    }
  }
  return warmup_table(rows);
}

}  // namespace tracestep::cli
