// The file in which `bench` keeps finished rows, so that an interrupted grid can go on.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/locked_file.h"
#include "lab/report/table.h"

namespace tracestep::cli {

// Either JSON lines, a header and one object per row, appended to; or a whole JSON result of
// `bench`, rewritten after each row. Rows are looked up by the column "cell", which holds all their
// parameters. A file is not changed before its whole content has been recognised as one of these
// two kinds.
class ResumeFile {
 public:
  // `environment`: of this run; a whole result from another machine keeps its own environment, and
  // a warning says so. An empty path keeps nothing. The file is created when missing, and locked
  // for the object's lifetime. Errors: kInput when it exists and is neither kind; kOutput when it
  // cannot be written, or another process writes it. A last line that was cut short is dropped.
  ResumeFile(const std::filesystem::path& path, std::vector<Column> columns, std::string schema,
             const Json& environment);

  // The finished row of this cell, or nullptr.
  const std::vector<Json>* find(const Json& cell) const;
  // Rows of this and of other grids.
  std::size_t size() const { return rows_.size(); }
  // Adds a row; on return it is in the file. Errors: kOutput.
  void add(const std::vector<Json>& row);

 private:
  void read(std::string_view text);
  bool read_document(std::string_view text);
  void warn_of_other_machine(const Json& here) const;
  void read_lines(std::string_view text);
  void read_line(std::string_view line, int number);
  bool is_part_of_row(std::string_view line) const;
  void remember(const Json& row, const std::string& where);
  [[noreturn]] void refuse(const std::string& reason) const;

  std::string name_;  // its name in messages
  std::vector<Column> columns_;
  std::string schema_;
  std::optional<LockedFile> file_;
  bool is_document_ = false;
  Json environment_;  // of a document
  std::vector<std::vector<Json>> rows_;
  std::map<std::string, std::size_t> by_cell_;  // canonical_text() of "cell" → index in rows_
};

}  // namespace tracestep::cli
