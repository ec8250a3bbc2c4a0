// Two results of the same command beside each other: rows matched by what they measured, how the
// times differ, and whether that is more than chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

// A JSON result as it was read.
struct ResultFile {
  std::string name;  // its name in messages
  std::string schema;
  Json environment;
  std::vector<ResultRow> rows;
};

// Limits for reading a result, far above what our commands write.
inline constexpr std::uint64_t kMaxResultBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMaxResultRows = 10000;

// Error{kInput} naming the file when a result has no environment or no rows.
void check_members(const Json& document, const std::string& name);

// Error{kInput} when the file is missing, is not a JSON result, comes from a command whose results
// have no samples, or exceeds the limits.
ResultFile read_result(const std::filesystem::path& path);
// The rows of a CSV file written by `bench`. Error{kInput} when it is missing, lacks the columns of
// bench, or exceeds the limits or 2^20 cells.
std::vector<ResultRow> read_result_csv(const std::filesystem::path& path);

enum class Change {
  kSame,     // the interval of the ratio lies within the margin
  kFaster,   // it lies below 1, and Mann-Whitney agrees
  kSlower,   // it lies above 1, likewise
  kUnclear,  // neither: measure more
};
std::string_view name_of(Change change);

struct Comparison {
  double ratio;      // median of B over median of A
  double low, high;  // 95 % interval; NaN with fewer than six samples on a side
  double p;          // Mann-Whitney, two-sided
  Change change = Change::kUnclear;
};

// `margin`: 0.02 counts medians within 2 % of each other as the same.
Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin);

// Whether the ratio is significantly above 1, by however little.
bool is_slower(const Comparison& comparison);

struct CompareOptions {
  double margin = 0.02;
  std::vector<std::string> ignored = {};  // key columns that may differ between matched rows
  // The gate: a row slower by more than this percentage is a regression, and one that cannot be
  // judged is undecided.
  std::optional<double> fail_percent = {};
};

struct ComparisonReport {
  Table environment;  // what differs, without dates and arguments
  Table rows;
  // One line per row, with the cell and the reason; only with fail_percent. The gate is passed when
  // both lists are empty.
  std::vector<std::string> regressions;
  std::vector<std::string> undecided;  // neither passed nor failed
};

// Error{kUsage} when the files come from different commands, an ignored column is not a key, or two
// rows of one file have equal keys.
ComparisonReport compare_results(const ResultFile& a, const ResultFile& b,
                                 const CompareOptions& options);

}  // namespace tracestep
