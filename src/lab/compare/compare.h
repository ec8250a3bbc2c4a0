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
  std::string name;  // what messages call it
  std::string schema;
  Json environment;
  std::vector<ResultRow> rows;
};

// A result of a hundred thousand rows is none of ours, nor one of this size.
inline constexpr std::uint64_t kMaxResultBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMaxResultRows = 10000;

// Error{kInput} naming the file when a result has no environment or no rows.
void check_members(const Json& document, const std::string& name);

// Error{kInput}: not there, not a JSON result, of a command that has no samples to compare, beyond
// these limits.
ResultFile read_result(const std::filesystem::path& path);
// Of bench as its CSV writer has it. Error{kInput}: not there, no columns of bench, beyond the
// limits or 2^20 cells.
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

// `margin`: 0.02 takes what lies within 2 % of each other for the same.
Comparison compare_samples(std::span<const double> a, std::span<const double> b, double margin);

// Whether it lies above 1 beyond chance, however little.
bool is_slower(const Comparison& comparison);

struct CompareOptions {
  double margin = 0.02;
  std::vector<std::string> ignored = {};  // key columns that may differ between matched rows
  // The gate: slower by more than this is a regression, and what cannot be told is named.
  std::optional<double> fail_percent = {};
};

struct ComparisonReport {
  Table environment;  // what differs, but for dates and arguments
  Table rows;
  // One line each, the cell and why; only with fail_percent. The gate is passed when both are
  // empty.
  std::vector<std::string> regressions;
  std::vector<std::string> undecided;  // neither passed nor failed
};

// Error{kUsage}: files of different commands, an ignored column that is no key, keys that do not
// tell the rows of one file apart.
ComparisonReport compare_results(const ResultFile& a, const ResultFile& b,
                                 const CompareOptions& options);

}  // namespace tracestep
