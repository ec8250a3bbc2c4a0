#include "cli/bench_processes.h"

#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/fresh_process.h"
#include "lab/measure/processes.h"

namespace tracestep::cli {

std::optional<Json> processes_row(const RunSpec& run, int processes,
                                  std::span<const std::string> arguments,
                                  std::optional<double> roof, const StopSignal& stop,
                                  const std::function<void(int process)>& announce) {
  std::vector<Json> rows;
  for (int i = 1; i <= processes; ++i) {
    if (stop.requested()) return {};
    announce(i);
    const std::string measured_roof = roof ? fmt::format("{}", *roof) : std::string();
    try {
      const Json result =
          bench_in_new_process(run, arguments, {{"--roof", measured_roof}}, "--processes");
      rows.push_back(result.at("rows").items().at(0));
    } catch (const Error&) {
      if (stop.requested()) return {};  // it was passed on
      throw;
    }
    const Json* known = rows.front().find("roof_tflops");
    if (!roof) roof = known != nullptr && known->is_number() ? known->as_double() : 0.0;
  }
  return merged_row(rows);
}

}  // namespace tracestep::cli
