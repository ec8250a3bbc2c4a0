// A result that was read from a file: its tables that can be compared, and their columns.
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
  // The table's name: "cells", or "matrix@tiny context 32 step" if there are several of a kind.
  std::string name;
  std::vector<Column> columns;  // The columns that have a role for comparing.
  std::vector<ResultRow> rows;

  // True if each row is a part of one cell, such as a kernel, a buffer or a component.
  bool is_of_parts() const;
};

struct ResultFile {
  std::string name;  // The file's name in messages.
  std::string schema;
  Json environment;
  std::vector<ResultTable> tables;  // The tables; the first one has the command's cells.

  // The rows of all tables whose rows are runs, and not parts of one.
  std::vector<ResultRow> cells() const;
};

// The most bytes of a result that are read, far above what our commands write.
inline constexpr std::uint64_t kMaxResultBytes = std::uint64_t{256} << 20;
// The most rows that are read of a table of cells; of a table of parts, a hundred times as many.
inline constexpr std::size_t kMaxResultRows = 10000;

// Throws Error{kInput} naming the file when a result has no environment or no rows.
void check_members(const Json& document, const std::string& name);

// Parses the text of a result. Throws Error{kInput} naming `name` if it is none of ours, for
// example a table or trace of another program.
Json result_document(std::string_view text, const std::string& name);

// The text of a member; empty if the member is missing or no text.
std::string text_at(const Json& object, std::string_view key);

// Reads a JSON document that one of our commands wrote. Throws Error{kInput} naming `name` if it is
// none, has nothing to compare, or exceeds the limits.
ResultFile result_of(const Json& document, const std::string& name);
// Reads the result in a file. Throws Error{kInput} also if the file is missing or is no JSON. A
// file whose name ends in ".csv" is read by read_result_csv().
ResultFile read_result(const std::filesystem::path& path);
// Reads tables of comma-separated values as our commands write them, with an empty line between
// two; each is recognised by its columns. Throws Error{kInput} if the file is missing, none of its
// tables is known, or it exceeds the limits or 2^20 cells.
ResultFile read_result_csv(const std::filesystem::path& path);

// Adds a table of a document (an object with "rows") if it has something to compare. If `name` is
// empty, the table is the declared one that has these columns. `environment` is that of the whole
// file.
void add_table(const std::string& name, const Json& table,
               const std::shared_ptr<const Json>& environment, ResultFile& out);
[[noreturn]] void fail_without_tables(const ResultFile& file);

}  // namespace tracestep
