// Reads the figures of an answer from tables and remembers the rows and columns they came from.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// A row that an answer uses, and the columns that were read.
struct RowRef {
  std::string table;
  std::size_t row = 0;
  std::vector<std::string> columns;
};

// The tables do not support an answer; what() says what they lack.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Unsupported with `why` unless the condition holds.
void require(bool condition, const std::string& why);

class Evidence {
 public:
  using Where = std::vector<std::pair<std::string_view, Json>>;  // column and value

  class Row {
   public:
    // The cell; Unsupported when the column is missing, empty or of another kind.
    double number(std::string_view column) const;
    std::int64_t whole(std::string_view column) const;
    std::string text(std::string_view column) const;
    bool truth(std::string_view column) const;
    std::vector<double> numbers(std::string_view column) const;
    std::string bytes(std::string_view column) const;     // "1.50 GiB"
    std::string duration(std::string_view column) const;  // of milliseconds: "1.50 s"
    // nullopt when the cell is empty.
    std::optional<double> number_if(std::string_view column) const;
    std::string text_or(std::string_view column, std::string_view otherwise) const;

   private:
    friend class Evidence;
    Row(const Evidence& evidence, const Table& table, std::size_t index)
        : evidence_(&evidence), table_(&table), index_(index) {}
    const Json* cell(std::string_view column) const;
    const Json& present(std::string_view column) const;

    const Evidence* evidence_;
    const Table* table_;
    std::size_t index_;
  };

  explicit Evidence(std::span<const Table> tables) : tables_(tables) {}

  // The first row with these cells. Throws Unsupported when the table or the row is missing.
  Row row(std::string_view table, const Where& where) const;
  std::optional<Row> find(std::string_view table, const Where& where) const;
  // All rows with these cells; throws Unsupported when there are none.
  std::vector<Row> rows(std::string_view table, const Where& where = {}) const;
  // Of those, the row whose `column` is largest.
  Row largest(std::string_view table, const Where& where, std::string_view column) const;

  // The rows read so far, in order of first use.
  const std::vector<RowRef>& used() const { return used_; }

 private:
  const Table& table(std::string_view name) const;
  void note(const Table& table, std::size_t row, std::string_view column) const;

  std::span<const Table> tables_;
  mutable std::vector<RowRef> used_;  // filled by the const reading functions
};

}  // namespace tracestep
