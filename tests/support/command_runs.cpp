#include "support/command_runs.h"

#include <algorithm>
#include <sstream>

#include "spec/fields.h"
#include "spec/run_grid.h"

namespace tracestep::testing {

std::vector<RunSpec> runs_of(const std::string& command) {
  RunGrid grid;
  std::istringstream words(command);
  for (std::string word, value; words >> word;) {
    const auto field = std::ranges::find(run_fields(), word, &RunField::flag);
    if (field == run_fields().end()) continue;
    words >> value;
    std::erase(value, '\'');  // a shell's
    std::vector<std::string> values = {value};
    if (field->is_axis) {
      values.clear();
      std::istringstream parts(value);
      for (std::string part; std::getline(parts, part, ',');) values.push_back(part);
    }
    grid.give(*field, word, std::move(values));
  }
  return grid.runs();
}

RunSpec run_of(const std::string& command) {
  return runs_of(command).front();
}

}  // namespace tracestep::testing
