// The file of --resume: the finished cells of commands as JSON lines. Behind a header, a line
// {"request"} says what all rows behind it depend on; each row is {"key", "row"}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/locked_file.h"

namespace tracestep::cli {

class RowsFile {
 public:
  using Row = std::pair<Json, Json>;  // key and row

  // `request`: all rows of this run depend on it. An empty path keeps them in memory alone. The
  // file is created when missing, and goes again where no row comes; it is locked for the object's
  // lifetime. Errors: kInput when it exists and holds anything else; kOutput when it cannot be
  // written, or another process writes it. A last line that was cut short is dropped.
  RowsFile(const std::filesystem::path& path, const Json& request);

  // The row with this key of the same request; nullptr: it is not there.
  const Json* find(const Json& key) const;
  // On return the rows are in the file, in this order. Errors: kOutput.
  void add(std::span<const Row> rows);
  bool was_empty() const { return was_empty_; }  // of rows, when it was opened

 private:
  void read(std::string_view text);
  void read_line(std::string_view line, int number);
  [[noreturn]] void refuse(const std::string& reason) const;
  std::string text_of(const Json& key) const { return request_ + key.dump(); }

  std::string name_, request_;
  std::optional<LockedFile> file_;
  std::string last_request_;  // of the file's last line of that kind
  bool has_header_ = false, was_empty_ = true;
  std::map<std::string, Json> rows_;  // by the texts of their request and key
};

// {"key", "row"} as a line, and back. Error{kInput} naming `where` for another line.
std::string line_of(const RowsFile::Row& row);
RowsFile::Row row_of_line(std::string_view line, const std::string& where);

}  // namespace tracestep::cli
