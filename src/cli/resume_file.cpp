#include "cli/resume_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "train/mapped_file.h"
#include "train/output_file.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kCell = "cell";

// Whether the whole text is one JSON result with a schema; a single line of JSON has none.
bool is_document(std::string_view text, Json& out) {
  try {
    out = Json::parse(text, "--resume");
  } catch (const Error&) {
    return false;
  }
  return out.is_object() && out.find("schema") != nullptr;
}

[[noreturn]] void fail_output(const fs::path& path) {
  throw Error(ErrorCode::kOutput, "--resume",
              fmt::format("{} cannot be written: {}", path.string(), std::strerror(errno)));
}

}  // namespace

ResumeFile::ResumeFile(fs::path path, std::vector<Column> columns, std::string schema)
    : path_(std::move(path)), columns_(std::move(columns)), schema_(std::move(schema)) {
  if (path_.empty()) return;
  std::error_code ignored;  // opening it will tell
  if (fs::exists(path_, ignored)) read();
  check_writable(path_);
}

void ResumeFile::read() {
  std::string text;
  {
    const MappedFile file(path_, "--resume");
    text.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  Json document;
  if (!is_document(text, document)) return read_lines(text);
  is_document_ = true;
  const std::string where = path_.string();
  if (!(document.at("schema") == Json(schema_))) {
    fail_input(where, "its schema is {}, not {}", document.at("schema").dump(), schema_);
  }
  environment_ = document.at("environment");
  for (const Json& row : document.at("rows").items()) remember(row, where);
}

void ResumeFile::read_lines(std::string_view text) {
  const std::size_t whole = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
  if (whole < text.size()) {
    // Killed while it wrote: that cell is measured again. A file that never had a whole line and
    // does not start like a row is something else, and must not be cut.
    if (whole == 0 && text[0] != '{') {
      fail_input(path_.string(), "it holds neither rows of bench nor a JSON result of it");
    }
  }
  int number = 0;
  for (std::string_view left = text.substr(0, whole); !left.empty();) {
    const std::size_t end = left.find('\n');
    const std::string where = fmt::format("{}:{}", path_.string(), ++number);
    if (end > 0) remember(Json::parse(left.substr(0, end), where), where);
    left.remove_prefix(end + 1);
  }
  if (whole == text.size()) return;
  log_warn("[--resume] the last line of {} was cut short; its cell is measured again",
           path_.string());
  std::error_code error;
  fs::resize_file(path_, whole, error);
  if (error) {
    errno = error.value();
    fail_output(path_);
  }
}

void ResumeFile::remember(const Json& row, const std::string& where) {
  if (!row.is_object()) fail_input(where, "a row is an object of column names and values");
  if (row.find(kCell) == nullptr) fail_input(where, "the row has no \"cell\"");
  std::vector<Json> cells;
  for (const Column& column : columns_) {
    const Json* value = row.find(column.name);
    cells.push_back(value == nullptr ? Json() : *value);
  }
  Table probe{.name = "resume", .columns = columns_};
  try {
    probe.add_row(cells);
  } catch (const std::logic_error&) {
    fail_input(where, "the row has values of another kind than bench writes");
  }
  const auto [found, is_new] = by_cell_.emplace(row.at(kCell).dump(), rows_.size());
  if (is_new) {
    rows_.push_back(std::move(cells));
  } else {
    rows_[found->second] = std::move(cells);
  }
}

const std::vector<Json>* ResumeFile::find(const Json& cell) const {
  const auto found = by_cell_.find(cell.dump());
  return found == by_cell_.end() ? nullptr : &rows_[found->second];
}

void ResumeFile::add(const std::vector<Json>& row) {
  if (path_.empty()) return;
  rows_.push_back(row);
  if (is_document_) {
    rewrite();
  } else {
    append(row);
  }
}

void ResumeFile::append(const std::vector<Json>& row) const {
  Json object = Json::object();
  for (std::size_t i = 0; i < columns_.size(); ++i) object[columns_[i].name] = row[i];
  const std::string line = object.dump() + "\n";
  std::FILE* file = std::fopen(path_.c_str(), "ae");
  if (file == nullptr) fail_output(path_);
  const bool wrote = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  if ((std::fclose(file) != 0) || !wrote) fail_output(path_);
}

void ResumeFile::rewrite() const {
  Table table{.name = "bench", .columns = columns_, .rows = rows_};
  write_output({schema_, environment_, {std::move(table)}}, Format::kJson, path_.string());
}

}  // namespace tracestep::cli
