#include "lab/compare/interleaved.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "lab/compare/result_file.h"
#include "lab/measure/processes.h"

namespace tracestep {

bool is_b_first(int pair, std::uint64_t seed) {
  return CounterRng(seed, "pairs").below(static_cast<std::uint64_t>(pair), 2) == 1;
}

Json merged_result(std::span<const Json> documents, const std::string& where) {
  Json out = documents.front();
  for (const Json& document : documents) {
    check_members(document, where);
    if (document.at("schema") == out.at("schema") &&
        document.at("rows").size() == out.at("rows").size()) {
      continue;
    }
    throw Error(ErrorCode::kFailed, where, "two runs of the command gave different tables",
                "name a command that measures the same cells every time");
  }
  Json rows = Json::array();
  for (std::size_t i = 0; i < out.at("rows").size(); ++i) {
    std::vector<Json> of_processes;
    for (const Json& document : documents) of_processes.push_back(document.at("rows").items()[i]);
    rows.push_back(merged_row(of_processes));
  }
  out["rows"] = std::move(rows);
  return out;
}

}  // namespace tracestep
