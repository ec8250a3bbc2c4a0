// The file in which `bench` keeps finished rows, so that an interrupted grid can go on.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep::cli {

// Either JSON lines, one object per row, appended to; or a whole JSON result of `bench`, rewritten
// after each row. The column "cell" holds all parameters of a row and is what rows are found by.
class ResumeFile {
 public:
  // An empty path keeps nothing. Errors: kInput when the file is there and is neither kind, kOutput
  // when it cannot be written. A last line that was cut short is dropped.
  ResumeFile(std::filesystem::path path, std::vector<Column> columns, std::string schema);

  // The finished row of this cell, or nullptr.
  const std::vector<Json>* find(const Json& cell) const;
  // Keeps a row; on return it is in the file. Errors: kOutput.
  void add(const std::vector<Json>& row);

  std::size_t size() const { return rows_.size(); }

 private:
  void read();
  void read_lines(std::string_view text);
  void remember(const Json& row, const std::string& where);
  void append(const std::vector<Json>& row) const;
  void rewrite() const;
  Json environment_;

  std::filesystem::path path_;
  std::vector<Column> columns_;
  std::string schema_;
  bool is_document_ = false;
  std::vector<std::vector<Json>> rows_;
  std::map<std::string, std::size_t> by_cell_;  // "cell" as text → index in rows_
};

}  // namespace tracestep::cli
