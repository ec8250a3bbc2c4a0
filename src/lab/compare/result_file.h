// A result as it was read: the tables of it that can be compared, and what their columns are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lab/measure/validity.h"
#include "lab/report/table.h"

namespace tracestep {

struct ResultTable {
  std::string name;             // "cells", or "matrix@tiny context 32 step" where there are several
  std::vector<Column> columns;  // the columns that have a role
  std::vector<ResultRow> rows;

  // True if rows are parts of one cell (kernels, buffers, components), and name the part.
  bool is_of_parts() const;
};

struct ResultFile {
  std::string name;  // its name in messages
  std::string schema;
  Json environment;
  std::vector<ResultTable> tables;  // the first one is that of the command's cells

  // Rows of runs: of all tables that are not the parts of one.
  std::vector<ResultRow> cells() const;
};

// Limits for reading a result, far above what our commands write.
inline constexpr std::uint64_t kMaxResultBytes = std::uint64_t{256} << 20;
inline constexpr std::size_t kMaxResultRows = 10000;  // of cells; a hundred times as many of parts

// Error{kInput} naming the file when a result has no environment or no rows.
void check_members(const Json& document, const std::string& name);

// The JSON of a result's text. Error{kInput} naming `name` when it is none of ours, as a table or a
// trace of another program.
Json result_document(std::string_view text, const std::string& name);

// The text of a member; empty: it is not there, or no text.
std::string text_at(const Json& object, std::string_view key);

// A JSON document as one of our commands writes it. Error{kInput} naming `name` when it is none,
// has nothing to compare, or exceeds the limits.
ResultFile result_of(const Json& document, const std::string& name);
// Error{kInput} also when the file is missing or is no JSON. A name that ends in ".csv": see
// read_result_csv().
ResultFile read_result(const std::filesystem::path& path);
// Tables of comma-separated values as our commands write them, with an empty line between two; each
// is known by its columns. Error{kInput} when the file is missing, none of its tables is known, or
// it exceeds the limits or 2^20 cells.
ResultFile read_result_csv(const std::filesystem::path& path);

// Adds a table of a document, an object with "rows", if there is something to compare in it. An
// empty `name`: that of the declared table with these columns. `environment`: of the whole file.
void add_table(const std::string& name, const Json& table,
               const std::shared_ptr<const Json>& environment, ResultFile& out);
[[noreturn]] void fail_without_tables(const ResultFile& file);

}  // namespace tracestep
