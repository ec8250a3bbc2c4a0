#include "lab/predict/history.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lab/measure/statistics.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr double kPrior = 2;  // cells' worth of trust in the calibration
constexpr double kLeastKinship = 0.25;
constexpr std::int64_t kEnough = 8;

// Returns how much the time of one run says of the other's, 1 at most: each field in which they
// differ, other than by how much work there is, halves it. Lines of earlier versions lack fields.
double kinship(const Json& a, const Json& b) {
  const auto value_in = [](const Json& key, const RunField& field) {
    const Json* value = key.find(field.name);
    return value == nullptr ? default_of(field) : value;
  };
  double out = 1;
  for (const RunField& field : run_fields()) {
    if (!tells_apart(field) || is_extent(field)) continue;
    const Json *x = value_in(a, field), *y = value_in(b, field);
    const bool is_same = x != nullptr && y != nullptr && *x == *y;
    if (!is_same) out /= 2;
  }
  return out;
}

constexpr double kLeastMs = 1e-6, kLongestMs = 1e9;  // a nanosecond, and eleven days
constexpr double kMostRatio = 1000;

double time_in(const Json& number, const std::string& where) {
  const double out = number.as_double();
  if (!(out >= kLeastMs && out <= kLongestMs)) fail_input(where, "{} ms is no time of a step", out);
  return out;
}

CheckedCell parse_line(std::string_view line, const std::string& where) {
  const Json json = Json::parse(line, where);
  run_of_key(json.at("cell"));  // throws unless its values are those of runs
  // Lines of earlier versions have only what the calibration alone predicted.
  const Json *model = &json.at("predicted_ms"), *told = json.find("corrected_ms");
  CheckedCell out{.date_utc = json.at("date_utc").as_string(),
                  .calibrated_utc = json.at("calibrated_utc").as_string(),
                  .key = json.at("cell"),
                  .model_ms = time_in(*model, where),
                  .predicted_ms = time_in(told == nullptr ? *model : *told, where),
                  .measured_ms = time_in(json.at("measured_ms"), where)};
  for (const double predicted_ms : {out.model_ms, out.predicted_ms}) {
    const double ratio = out.measured_ms / predicted_ms;
    if (ratio > kMostRatio || ratio < 1 / kMostRatio) {
      fail_input(where, "{} ms measured where {} ms were predicted", out.measured_ms, predicted_ms);
    }
  }
  return out;
}

}  // namespace

std::string line_of(const CheckedCell& cell) {
  return Json(Json::Object{{"date_utc", cell.date_utc},
                           {"calibrated_utc", cell.calibrated_utc},
                           {"cell", cell.key},
                           {"predicted_ms", cell.model_ms},
                           {"corrected_ms", cell.predicted_ms},
                           {"measured_ms", cell.measured_ms}})
      .dump();
}

History parse_history(const std::string& text, const std::string& where) {
  History out;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string line = fmt::format("{}, line {}", where, number);
    try {
      if (end > 0) out.cells.push_back(parse_line(rest.substr(0, end), line));
    } catch (const Error& error) {
      out.faults.push_back(fmt::format("{}: {}", line, error.text()));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out;
}

Correction correction_for(const RunSpec& run, std::span<const CheckedCell> history,
                          const std::string& calibrated_utc, double spread) {
  const Json key = key_of(run);
  std::vector<double> logs;
  double total = 0, weight = kPrior;
  for (const CheckedCell& cell : history) {
    const double related = kinship(key, cell.key);
    if (cell.calibrated_utc != calibrated_utc || related < kLeastKinship) continue;
    logs.push_back(std::log(cell.measured_ms / cell.model_ms));
    total += related * logs.back();
    weight += related;
  }
  Correction out{.factor = std::exp(total / weight), .spread = spread, .cells = std::ssize(logs)};
  if (logs.empty()) return out;
  std::vector<double> errors;
  for (double log : logs) errors.push_back(std::abs(log - total / weight));
  const double seen = std::expm1(quantile_of(errors, 0.9));
  out.spread = out.cells >= kEnough ? seen : std::max(seen, spread);
  return out;
}

}  // namespace tracestep
