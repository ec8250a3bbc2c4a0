// Which rows of two tables of one name are of the same thing, and how they are labelled: by the
// roles of their columns and, where those are fields of runs, by the table of run fields.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lab/compare/result_file.h"

namespace tracestep {

class TablePair {
 public:
  // `ignored`: keys that may differ in rows that are matched. Fields that only change the speed,
  // which is what is compared, may differ as well, unless they vary within a table. With
  // `is_of_two_things`, where no row has its like, so may the keys that all rows of one table
  // differ in from those of the other: they are what is compared.
  TablePair(const ResultTable& a, const ResultTable& b, const std::vector<std::string>& ignored,
            bool is_of_two_things = false);

  const ResultTable &a, &b;  // both outlive the pair
  bool is_of_parts() const { return a.is_of_parts(); }
  // The columns that either table has with this role.
  std::vector<Column> columns(ColumnRole role) const;
  // Key columns, then what else decides the program or the speed of a run, in a column or in
  // "cell".
  const std::vector<std::string>& keys() const { return keys_; }

  // The row's keys without the ignored ones, as one text: equal for rows of the same thing.
  std::string identity(const ResultRow& row) const;
  // The rows of either table by identity(). Error{kUsage} naming it when two have the same one.
  std::map<std::string, const ResultRow*> by_identity(const ResultTable& table) const;
  // "precision fp32 → bf16": what all rows of A differ in from all of B; empty: nothing.
  std::string difference() const;
  // The label of a pair of rows; where a key differs, both values are given.
  std::string label(const ResultRow& row_a, const ResultRow& row_b) const;

 private:
  bool goes_without_saying(const std::string& key, const Json& value, const ResultRow& row) const;

  bool has_match() const;

  std::vector<std::string> keys_, matched_;  // matched_: keys that are not ignored
  std::vector<std::string> apart_;           // keys with one value in A and another in B
  std::set<std::string, std::less<>> varying_;
};

// A string as it is, any other value as JSON.
std::string words(const Json& value);

// Error{kUsage} naming an ignored column that is a key of none of these pairs.
void check_ignored(std::span<const TablePair> pairs, const std::vector<std::string>& ignored);

}  // namespace tracestep
