// Which rows of two results are the same cell, and what people call them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lab/compare/compare.h"

namespace tracestep {

// What rows of a command are told apart by, and where their samples are.
struct ResultLayout {
  std::string_view schema;
  std::vector<std::string_view> keys;  // columns, or members of "cell"
  struct Measure {
    std::string_view samples, name;  // the column, and what is timed; empty: the row as such
  };
  std::vector<Measure> measures;
};

std::vector<std::string_view> compared_schemas();
// nullptr for a command whose rows have no samples.
const ResultLayout* layout_of(std::string_view schema);

// What people call a pair of rows; where they differ both are named.
std::string pair_label(const ResultRow& a, const ResultRow& b, const ResultLayout& layout);

// The keys that are compared, as one text.
std::string identity(const ResultRow& row, const ResultLayout& layout,
                     const std::vector<std::string>& ignored);

// The keys that do not tell rows apart: those asked for, and what only changes the speed, which is
// what is compared, unless a file has rows of both kinds.
std::vector<std::string> ignored_keys(const ResultFile& a, const ResultFile& b,
                                      const std::vector<std::string>& asked);

// All rows by their identity. Error{kUsage}: two rows have the same one.
std::map<std::string, const ResultRow*> by_identity(const ResultFile& file,
                                                    const ResultLayout& layout,
                                                    const std::vector<std::string>& ignored);

// A text as it is, anything else as JSON.
std::string words(const Json& value);

// Error{kUsage} naming what is no key of these rows.
void check_ignored(const ResultLayout& layout, const std::vector<std::string>& ignored);

}  // namespace tracestep
