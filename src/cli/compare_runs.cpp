#include "cli/compare_runs.h"

#include <random>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "lab/compare/interleaved.h"

namespace tracestep::cli {
namespace {

// nullopt: the command ended, or failed, because of the signal that was passed on to it.
std::optional<Json> result_of_command(const std::string& command, const StopSignal& stop) {
  const std::vector<std::string> format = command.find("--format") == std::string::npos
                                              ? std::vector<std::string>{"--format", "json"}
                                              : std::vector<std::string>{};
  const ProcessResult process = run_command(command, format);
  if (stop.requested()) return std::nullopt;
  if (process.status != 0 && process.status != exit_code(ErrorCode::kOutOfMemory)) {
    throw Error(ErrorCode::kFailed, "--run",
                fmt::format("`{}` ended with status {}: {}", command, process.status,
                            last_line(process.err)));
  }
  try {
    Json out = Json::parse(process.out, "--run");
    result_of(out, "--run");
    return out;
  } catch (const Error& error) {
    throw Error(
        ErrorCode::kInput, "--run",
        fmt::format("`{}` prints no result that can be compared: {}", command, error.message()),
        "give commands that measure, as tracestep bench, or that print such JSON "
        "themselves");
  }
}

}  // namespace

std::optional<RunPair> run_in_pairs(const std::string& a, const std::string& b, int processes,
                                    const StopSignal& stop) {
  const std::uint64_t seed = std::random_device()();
  std::vector<Json> of_a, of_b;
  ProgressLine progress;
  for (int turn = 0; turn < 2 * processes; ++turn) {
    const bool is_second = turn % 2 == 1;
    const bool is_b = is_b_first(turn / 2, seed) != is_second;
    progress.update(fmt::format("{}/{}  {}", turn + 1, 2 * processes, is_b ? "B" : "A"));
    std::vector<Json>& results = is_b ? of_b : of_a;
    std::optional<Json> result = result_of_command(is_b ? b : a, stop);
    if (!result) return std::nullopt;
    results.push_back(*std::move(result));
  }
  progress.done();
  return RunPair{result_of(merged_result(of_a, "--run"), "A"),
                 result_of(merged_result(of_b, "--run"), "B")};
}

}  // namespace tracestep::cli
