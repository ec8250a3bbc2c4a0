// The file of --resume: finished cells of commands as JSON lines. A line {"request"} holds
// everything that the rows after it depend on; each row is {"key", "row"}.
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

  // Opens the file and reads its rows. `request`: everything that the rows of this run depend on.
  // An empty path keeps rows in memory only. A missing file is created, and removed again if it
  // gets no row; the file is locked for the object's lifetime. Throws Error{kInput} if it holds
  // anything else, and Error{kOutput} if it cannot be written or another process writes it. Drops a
  // last line that was cut short.
  RowsFile(const std::filesystem::path& path, const Json& request);

  // The row with this key and the same request; nullptr: there is none.
  const Json* find(const Json& key) const;
  // Appends rows in this order; when it returns, they are in the file. Throws Error{kOutput}.
  void add(std::span<const Row> rows);
  bool was_empty() const { return was_empty_; }  // True if the file had no rows when it was opened.

 private:
  void read(std::string_view text);
  void read_line(std::string_view line, int number);
  [[noreturn]] void refuse(const std::string& reason) const;
  std::string text_of(const Json& key) const { return request_ + key.dump(); }

  std::string name_, request_;
  std::optional<LockedFile> file_;
  std::string last_request_;  // The request in the file's last line of that kind.
  bool has_header_ = false, was_empty_ = true;
  std::map<std::string, Json> rows_;  // Rows by the text of request and key.
};

// Converts a row to a line {"key", "row"}, and back. Throws Error{kInput} naming `where` for
// another line.
std::string line_of(const RowsFile::Row& row);
RowsFile::Row row_of_line(std::string_view line, const std::string& where);

}  // namespace tracestep::cli
