// Matches the rows of two tables of one name that are of the same thing, and labels them. It uses
// the roles of the columns and, for columns that are fields of runs, the table of run fields.
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
  // Pairs two tables. `ignored`: key columns in which matched rows may differ. So may fields that
  // only change the speed, as speed is what is compared, unless they vary within one table. With
  // `is_of_two_things`, if no row has a match, key columns that have one value in A and another in
  // B may differ too: they are then what is compared.
  TablePair(const ResultTable& a, const ResultTable& b, const std::vector<std::string>& ignored,
            bool is_of_two_things = false);

  const ResultTable &a, &b;  // both outlive the pair
  bool is_of_parts() const { return a.is_of_parts(); }
  // The columns that either table has with this role.
  std::vector<Column> columns(ColumnRole role) const;
  // The key columns, then the other fields that decide the program or the speed of a run, whether
  // they have a column or are in "cell".
  const std::vector<std::string>& keys() const { return keys_; }

  // The row's keys without the ignored ones, as one text: equal for rows of the same thing.
  std::string identity(const ResultRow& row) const;
  // The rows of one of the tables by identity(). Throws Error{kUsage} naming the row if two rows
  // have one identity.
  std::map<std::string, const ResultRow*> by_identity(const ResultTable& table) const;
  // The key in which all rows of A differ from all rows of B, with its values: "precision fp32 →
  // bf16"; empty: there is none.
  std::string difference() const;
  // The label of a pair of rows; where a key differs, both values are given.
  std::string label(const ResultRow& row_a, const ResultRow& row_b) const;

 private:
  bool goes_without_saying(const std::string& key, const Json& value, const ResultRow& row) const;

  bool has_match() const;

  // keys_: see keys(); matched_: the members of keys_ that are not ignored.
  std::vector<std::string> keys_, matched_;
  // Key columns with one value in all of A and another in all of B.
  std::vector<std::string> apart_;
  std::set<std::string, std::less<>> varying_;
};

// Writes a value: a string without quotes, any other as JSON.
std::string words(const Json& value);

// Throws Error{kUsage} naming an ignored column that is a key of none of these pairs.
void check_ignored(std::span<const TablePair> pairs, const std::vector<std::string>& ignored);

}  // namespace tracestep
