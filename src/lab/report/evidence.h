// Reads the figures of an answer from tables and remembers the rows and columns they came from.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/report/quantity.h"
#include "lab/report/table.h"

namespace tracestep {

// A row that an answer uses, and the columns that were read.
struct RowRef {
  std::string table;
  std::size_t row = 0;
  std::vector<std::string> columns;
};

class Evidence {
 public:
  using Where = std::vector<std::pair<std::string_view, Json>>;  // column and value

  static constexpr std::size_t kLongestQuote = 200;  // names of kernels differ in their middle

  class Row {
   public:
    // Returns the number in a cell; throws Unsupported if the cell is missing, empty or no number.
    Quantity get(std::string_view column) const;  // exact
    // Returns a cell's text as a quotation; a text over `max_bytes` is printed without its middle.
    Text quote(std::string_view column, std::size_t max_bytes = kLongestQuote) const;
    // Quotes a text in at most `max_bytes`. If other texts of the column begin and end like it, the
    // part that tells them apart is shown: "...tn_n_tilesize128x64x8...".
    Text quote_apart(std::string_view column, std::size_t max_bytes) const;
    std::vector<double> numbers(std::string_view column) const;
    // Returns the row's model or label as a quotation, with the vocabulary if another model of the
    // report has the same size with another vocabulary: "tiny, vocabulary 256".
    Text model() const;
    Text name() const;
    const std::string& table() const { return table_->name; }
    bool is(const RowRef& ref) const { return ref.row == index_ && ref.table == table_->name; }
    // True if another row has the same texts, counts and bytes and differs at most in measured
    // numbers, so that a reader could not tell the two apart.
    bool is_like(const Row& other) const;
    // Read a cell to choose a row or a branch. Numbers that are printed come from get() and quote()
    // instead.
    double number(std::string_view column) const;
    std::string text(std::string_view column) const;
    std::string text_or(std::string_view column, std::string_view otherwise) const;
    bool has(std::string_view column) const;
    bool is_list(std::string_view column) const;
    // Reads a cell without recording it in used(). nullptr if the table has no such column.
    const Json* peek(std::string_view column) const { return cell(column); }
    // Throws Unsupported when the table has no such column.
    void require_column(std::string_view column) const;
    // Returns the cell in a formula: "cells[3].flops".
    std::string formula(std::string_view column) const;

   private:
    friend class Evidence;
    friend std::string formula_of(std::span<const Row> rows, std::string_view column);
    Row(const Evidence& evidence, const Table& table, std::size_t index)
        : evidence_(&evidence), table_(&table), index_(index) {}
    const Json* cell(std::string_view column) const;
    const Json& present(std::string_view column) const;
    // Returns the text ", vocabulary 256", or an empty one if the size alone names the model.
    Text vocabulary() const;

    const Evidence* evidence_;
    const Table* table_;
    std::size_t index_;
  };

  explicit Evidence(std::span<const Table> tables) : tables_(tables) {}

  // Returns the first row with these cells; throws Unsupported if the table or the row is missing.
  Row row(std::string_view table, const Where& where) const;
  std::optional<Row> find(std::string_view table, const Where& where) const;
  // Returns the row of the same table for the same run (equal in the fields of spec/fields.h),
  // except that it has the cells in `changed`. Throws Unsupported when there is none.
  Row beside(const Row& row, const Where& changed) const;
  // Returns the rows of `table` for the same run as `row`, which the structured column "cell"
  // identifies; empty if either table lacks that column.
  std::vector<Row> same_cell(const Row& row, std::string_view table) const;
  // Returns the rows of `table` that agree with `row` in all key columns that both tables have,
  // except for the cells in `changed`. Throws Unsupported when there are none.
  std::vector<Row> as(const Row& row, std::string_view table, const Where& changed) const;
  // Returns all rows with these cells; throws Unsupported when there are none.
  std::vector<Row> rows(std::string_view table, const Where& where = {}) const;

  // Returns the rows read so far, in order of first use.
  const std::vector<RowRef>& used() const { return used_; }
  // Restores used() to `before`, as if nothing had been read since.
  void forget(std::vector<RowRef> before) const { used_ = std::move(before); }
  // Returns the values of the structured column "cell" (all parameters of a run) in these rows,
  // where they have one.
  std::vector<Json> cells_of(std::span<const RowRef> rows) const;

 private:
  const Table& table(std::string_view name) const;
  void note(const Table& table, std::size_t row, std::string_view column) const;
  bool has_namesake(const Json& size, const Json& vocab) const;

  std::span<const Table> tables_;
  mutable std::vector<RowRef> used_;  // filled by the const reading functions
};

// Lists row numbers: "1,4-6", runs of three and more as a range.
std::string list_of_rows(std::span<const std::size_t> rows, std::string_view comma = ",",
                         std::string_view to = "-");
// Returns the formula of a column over several rows of one table: "kinds[1,4-6].ms".
std::string formula_of(std::span<const Evidence::Row> rows, std::string_view column);

// True if a cell of the table's row is in the formula.
bool formula_has_row(std::string_view formula, const std::string& table, std::size_t row);

// Compares two text cells of one column alphabetically, as the relation "a = b" or "a < b".
Relation compare_texts(const Evidence::Row& a, const Evidence::Row& b, std::string_view column);
// Return the sum, most and least of a column over rows of one table; `rows` has at least one.
Quantity sum_of(std::span<const Evidence::Row> rows, std::string_view column);
Quantity most_of(std::span<const Evidence::Row> rows, std::string_view column);
Quantity least_of(std::span<const Evidence::Row> rows, std::string_view column);
// Counts the rows in which the cell is not empty.
Quantity count_of(std::span<const Evidence::Row> rows, std::string_view column);
// Counts the rows in which the cell says `value`.
Quantity count_of(std::span<const Evidence::Row> rows, std::string_view column,
                  std::string_view value);
// Counts the numbers in a cell that has a list.
Quantity count_in(const Evidence::Row& row, std::string_view column);
Quantity most_in(const Evidence::Row& row, std::string_view column);
Quantity least_in(const Evidence::Row& row, std::string_view column);

}  // namespace tracestep
