// Which rows of two results are the same cell, and how they are labelled.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lab/compare/compare.h"

namespace tracestep {

// For one command: the keys that identify its rows, and where their samples are.
struct ResultLayout {
  std::string_view schema;
  std::vector<std::string_view> keys;  // columns, or members of "cell"
  struct Measure {
    std::string_view samples, name;  // the column, and what is timed; empty: the row as such
  };
  std::vector<Measure> measures;
};

std::vector<std::string_view> compared_schemas();
// The layout for a result's schema; nullptr for a command whose rows have no samples.
const ResultLayout* layout_of(std::string_view schema);

// The label of a pair of rows; where a key differs, both values are given.
std::string pair_label(const ResultRow& a, const ResultRow& b, const ResultLayout& layout);

// The row's keys without the ignored ones, as one text: equal for rows of the same cell.
std::string identity(const ResultRow& row, const ResultLayout& layout,
                     const std::vector<std::string>& ignored);

// The keys that are ignored when rows are matched: those asked for, and fields that only change the
// speed (which is what is compared), unless they vary within a file.
std::vector<std::string> ignored_keys(const ResultFile& a, const ResultFile& b,
                                      const std::vector<std::string>& asked);

// All rows by identity(). Error{kUsage} when two rows have the same one.
std::map<std::string, const ResultRow*> by_identity(const ResultFile& file,
                                                    const ResultLayout& layout,
                                                    const std::vector<std::string>& ignored);

// A string as it is, any other value as JSON.
std::string words(const Json& value);

// Error{kUsage} naming an ignored column that is not a key of these rows.
void check_ignored(const ResultLayout& layout, const std::vector<std::string>& ignored);

}  // namespace tracestep
