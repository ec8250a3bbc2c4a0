#include "cli/bench_warmup.h"

#include "base/error.h"
#include "base/log.h"
#include "cli/fresh_process.h"
#include "lab/time/tables.h"

namespace tracestep::cli {
namespace {

ResultRow fresh_row(const RunSpec& run, std::int64_t warmup,
                    std::span<const std::string> arguments) {
  const Json result = bench_in_new_process(
      run, arguments, {{"--warmup", std::to_string(warmup)}, {"--roof", "0"}, {"--max-noise", ""}},
      "--warmup-study");
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
        rows.push_back(fresh_row(run, warmup, arguments));
      } catch (const Error&) {
        if (stop != nullptr && stop->requested()) return warmup_table(rows);  // it was passed on
        throw;
      }
    }
  }
  return warmup_table(rows);
}

}  // namespace tracestep::cli
