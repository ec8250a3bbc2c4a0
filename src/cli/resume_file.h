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
// `bench`, rewritten after each row. The column "cell" holds all parameters of a row and is what
// rows are found by. Nothing of a file is touched before all of it has been seen to be ours.
class ResumeFile {
 public:
  // `environment`: of this run; a document of another machine is warned of, for it keeps its own.
  // An empty path keeps nothing. The file is made when it is missing, and locked until the end.
  // Errors: kInput when it is there and is neither kind; kOutput when it cannot be written, or
  // another process writes it. A last line that was cut short is dropped.
  ResumeFile(const std::filesystem::path& path, std::vector<Column> columns, std::string schema,
             const Json& environment);

  // The finished row of this cell, or nullptr.
  const std::vector<Json>* find(const Json& cell) const;
  // Keeps a row; on return it is in the file. Errors: kOutput.
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

  std::string name_;  // what messages call it
  std::vector<Column> columns_;
  std::string schema_;
  std::optional<LockedFile> file_;
  bool is_document_ = false;
  Json environment_;  // of a document
  std::vector<std::vector<Json>> rows_;
  std::map<std::string, std::size_t> by_cell_;  // canonical_text() of "cell" → index in rows_
};

}  // namespace tracestep::cli
