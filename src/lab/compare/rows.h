// What the tables of results hold: which columns identify a row, which have samples of time, and
// which are compared exactly. Which rows of two results are the same, and how they are labelled.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/measure/validity.h"

namespace tracestep {

struct TableLayout {
  std::string_view table;              // its name in a result, up to an "@"
  std::vector<std::string_view> keys;  // columns, or members of "cell"
  struct Measure {
    std::string_view samples, name;  // the column, and what is timed; empty: the row as such
  };
  std::vector<Measure> measures = {};
  // Bytes, launches, FLOPs and errors: the same in every run of one program, and more is worse.
  std::vector<std::string_view> exact = {};
  // Milliseconds of a few steps of one process: shown where they changed most, and never judged.
  std::string_view shown_ms = {};
  // Rows are the parts of one cell (kernels, buffers, components), which name what changed; those
  // of equal keys are added up.
  bool is_parts = false;
};

// The layout of a table with this name and this first row (null: the table is empty); with an empty
// name the first one that has these columns. nullptr: there is nothing to compare.
const TableLayout* layout_of(std::string_view table, const Json& first_row);
// The name of the table that results with this schema have under "rows"; empty: to be found by its
// columns.
std::string_view primary_table(std::string_view schema);
// The schemas whose results have tables that can be compared.
std::vector<std::string_view> compared_schemas();

// The label of a pair of rows; where a key differs, both values are given.
std::string pair_label(const ResultRow& a, const ResultRow& b, const TableLayout& layout);

// The row's keys without the ignored ones, as one text: equal for rows of the same cell.
std::string identity(const ResultRow& row, const TableLayout& layout,
                     const std::vector<std::string>& ignored);

// The keys that are ignored when rows are matched: those asked for, and fields that only change the
// speed (which is what is compared), unless they vary within a list.
std::vector<std::string> ignored_keys(std::span<const ResultRow> a, std::span<const ResultRow> b,
                                      const std::vector<std::string>& asked);

// All rows by identity(). Error{kUsage} naming `file` when two rows have the same one.
std::map<std::string, const ResultRow*> by_identity(std::span<const ResultRow> rows,
                                                    const std::string& file,
                                                    const TableLayout& layout,
                                                    const std::vector<std::string>& ignored);

// A string as it is, any other value as JSON.
std::string words(const Json& value);

// Error{kUsage} naming an ignored column that is a key of none of these tables.
void check_ignored(std::span<const TableLayout* const> layouts,
                   const std::vector<std::string>& ignored);

}  // namespace tracestep
