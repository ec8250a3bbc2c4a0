#include "cli/resume_file.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "lab/compare/result_file.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

constexpr std::string_view kCell = "cell";
constexpr std::string_view kLinesSchema = "tracestep.bench.resume/1";
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
// Members of a result of one table; a file with others would lose them when it is rewritten.
constexpr std::array<std::string_view, 5> kDocumentMembers = {"schema", "environment", "columns",
                                                              "rows", "notes"};

std::string header_line() {
  return Json(Json::Object{{"schema", kLinesSchema}}).dump() + "\n";
}

bool is_header(const Json& line) {
  const Json* schema = line.is_object() ? line.find("schema") : nullptr;
  return schema != nullptr && *schema == Json(kLinesSchema);
}

std::optional<Json> parsed(std::string_view text) {
  try {
    return Json::parse(text, "--resume");
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

ResumeFile::ResumeFile(const std::filesystem::path& path, std::vector<Column> columns,
                       std::string schema, const Json& environment)
    : name_(path.string()), columns_(std::move(columns)), schema_(std::move(schema)) {
  if (path.empty()) return;
  file_.emplace(path, "--resume");
  const std::string text = file_->read(kMostBytes);
  if (text.empty()) {
    file_->append(header_line());
  } else if (read_document(text)) {
    warn_of_other_machine(environment);
  } else {
    read_lines(text);
  }
}

void ResumeFile::refuse(const std::string& reason) const {
  throw Error(ErrorCode::kInput, name_,
              fmt::format("it holds neither rows of bench nor a JSON result of it: {}", reason),
              "name another file, or one that does not exist yet");
}

// False when the text is not a JSON result. In JSON lines only the header has a schema.
bool ResumeFile::read_document(std::string_view text) {
  const std::optional<Json> document = parsed(text);
  if (!document || !document->is_object() || is_header(*document)) return false;
  const Json* schema = document->find("schema");
  if (schema == nullptr) return false;
  if (!(*schema == Json(schema_))) {
    refuse(fmt::format("its schema is {}, not {}", schema->dump(), schema_));
  }
  for (const auto& [member, value] : document->members()) {
    if (std::ranges::find(kDocumentMembers, member) != kDocumentMembers.end()) continue;
    refuse(fmt::format("bench writes no \"{}\"", member));
  }
  is_document_ = true;
  check_members(*document, name_);
  environment_ = document->at("environment");
  for (const Json& row : document->at("rows").items()) remember(row, name_);
  return true;
}

// A document has one environment for the rows of all machines.
void ResumeFile::warn_of_other_machine(const Json& here) const {
  const Json missing;
  std::string differences;
  for (std::string_view item : {"cpu", "gpu", "threads"}) {
    const Json *then = environment_.find(item), *now = here.find(item);
    if (then == nullptr) continue;
    if (now == nullptr) now = &missing;
    if (*then == *now) continue;
    differences += fmt::format("{}{} was {} and is {}", differences.empty() ? "" : ", ", item,
                               then->dump(), now->dump());
  }
  if (differences.empty()) return;
  log_warn("[--resume] the rows of {} are of another machine, and it keeps that environment: {}",
           name_, differences);
}

void ResumeFile::read_lines(std::string_view text) {
  int number = 0;
  bool is_proven = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end - begin);
    ++number;
    if (end == std::string_view::npos && !parsed(line)) {
      // The process was killed while writing this line: the cell is measured again.
      if (!is_proven || !is_part_of_row(line)) refuse(fmt::format("line {} is no row", number));
      log_warn("[--resume] the last line of {} was cut short; its cell is measured again", name_);
      return file_->cut(static_cast<std::int64_t>(begin));
    }
    if (!line.empty()) {
      read_line(line, number);
      is_proven = true;
    }
    if (end == std::string_view::npos) return file_->append("\n");
    begin = end + 1;
  }
  if (!is_proven) refuse("there are only empty lines");
}

void ResumeFile::read_line(std::string_view line, int number) {
  const std::optional<Json> json = parsed(line);
  if (!json) refuse(fmt::format("line {} is no JSON", number));
  if (number == 1 && is_header(*json)) return;
  remember(*json, fmt::format("{}:{}", name_, number));
}

// Whether a line of ours may begin like this.
bool ResumeFile::is_part_of_row(std::string_view line) const {
  const std::string start = fmt::format("{{\"{}\":", columns_.front().name);
  return line.starts_with(start) || start.starts_with(line);
}

void ResumeFile::remember(const Json& row, const std::string& where) {
  const auto fail = [&](const std::string& reason) {
    refuse(fmt::format("{}: {}", where, reason));
  };
  if (!row.is_object()) fail("a row is an object of column names and values");
  const Json* cell = row.find(kCell);
  if (cell == nullptr || !cell->is_object()) fail("the row has no \"cell\"");
  for (const auto& [name, value] : row.members()) {
    if (std::ranges::find(columns_, name, &Column::name) == columns_.end()) {
      fail(fmt::format("bench writes no column \"{}\"", name));
    }
  }
  std::vector<Json> cells;
  for (const Column& column : columns_) {
    const Json* value = row.find(column.name);
    cells.push_back(value == nullptr ? Json() : *value);
  }
  Table probe{.name = "resume", .columns = columns_};
  try {
    probe.add_row(cells);
  } catch (const std::logic_error&) {
    fail("the row has values of another kind than bench writes");
  }
  const auto [found, is_new] = by_cell_.emplace(canonical_text(*cell), rows_.size());
  if (is_new) {
    rows_.push_back(std::move(cells));
  } else {
    rows_[found->second] = std::move(cells);
  }
}

const std::vector<Json>* ResumeFile::find(const Json& cell) const {
  const auto found = by_cell_.find(canonical_text(cell));
  return found == by_cell_.end() ? nullptr : &rows_[found->second];
}

void ResumeFile::add(const std::vector<Json>& row) {
  if (!file_) return;
  rows_.push_back(row);
  if (is_document_) {
    const Table table{.name = "bench", .columns = columns_, .rows = rows_};
    return file_->replace(to_string({schema_, environment_, {table}}, Format::kJson));
  }
  Json object = Json::object();
  for (std::size_t i = 0; i < columns_.size(); ++i) object[columns_[i].name] = row[i];
  file_->append(object.dump() + "\n");
}

}  // namespace tracestep::cli
