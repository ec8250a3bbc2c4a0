#include "cli/bench_warmup.h"

#include "base/error.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "cli/request.h"
#include "lab/time/tables.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

// The JSON result of a command in a new process. Error{kFailed} with the last message of a process
// that fails; running out of memory is a result.
Json result_in_new_process(Request request) {
  request.set("--format", "json");
  const ProcessResult process = run_self(request.words());
  if (process.status != 0 && process.status != exit_code(ErrorCode::kOutOfMemory)) {
    throw Error(ErrorCode::kFailed, "--warmup-study",
                fmt::format("a process of its own ended with status {}: {}", process.status,
                            last_line(process.err)));
  }
  return Json::parse(process.out, "--warmup-study");
}

// The row of one run: its values stand where the request may have lists.
ResultRow fresh_row(Request request, const RunSpec& run, std::int64_t warmup) {
  for (const RunField& field : run_fields()) {
    if (!field.is_axis) continue;
    request.drop(field.flag);
    if (!field.alias.empty()) request.drop(field.alias);
    // Empty for the size of a custom model, whose sizes have flags of their own.
    if (const std::string value = default_text(field, run); !value.empty()) {
      request.set(field.flag, value);
    }
  }
  for (const char* flag : {"--warmup-study", "--output", "--max-noise"}) request.drop(flag);
  request.set("--warmup", std::to_string(warmup));
  request.set("--roof", "0");
  const Json result = result_in_new_process(request);
  return ResultRow(result.at("rows").items().at(0), result.at("environment"));
}

}  // namespace

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
      try {
        rows.push_back(fresh_row(Request(arguments), run, warmup));
      } catch (const Error&) {
        if (stop != nullptr && stop->requested()) return warmup_table(rows);  // it was passed on
        throw;
      }
    }
  }
  return warmup_table(rows);
}

}  // namespace tracestep::cli
