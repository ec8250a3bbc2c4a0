#include "cli/rows_file.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace tracestep::cli {
namespace {

constexpr const char* kRowsSchema = "tracestep.rows/1";
constexpr std::int64_t kMostRowsBytes = std::int64_t{1} << 30;

std::string header() {
  return Json(Json::Object{{"schema", kRowsSchema}}).dump();
}

std::string line_of_request(const std::string& request) {
  return fmt::format(R"({{"request":{}}})", request);
}

}  // namespace

std::string line_of(const RowsFile::Row& row) {
  return Json(Json::Object{{"key", row.first}, {"row", row.second}}).dump() + "\n";
}

RowsFile::Row row_of_line(std::string_view line, const std::string& where) {
  const Json json = Json::parse(line, where);
  return {json.at("key"), json.at("row")};
}

RowsFile::RowsFile(const std::filesystem::path& path, const Json& request)
    : name_(path.string()), request_(request.dump()) {
  if (path.empty()) return;
  file_.emplace(path, "--resume");
  const std::string text = file_->read(kMostRowsBytes);
  has_header_ = !text.empty();
  if (has_header_) read(text);
  was_empty_ = rows_.empty();
}

const Json* RowsFile::find(const Json& key) const {
  const auto found = rows_.find(text_of(key));
  return found == rows_.end() ? nullptr : &found->second;
}

void RowsFile::add(std::span<const Row> rows) {
  std::string text;
  if (file_ && !has_header_) text += header() + "\n";
  if (last_request_ != request_) text += line_of_request(request_) + "\n";
  for (const Row& row : rows) text += line_of(row);
  if (file_) file_->append(text);
  has_header_ = true;
  last_request_ = request_;
  for (const Row& row : rows) rows_[text_of(row.first)] = row.second;
}

void RowsFile::read(std::string_view text) {
  const std::size_t first_end = std::min(text.find('\n'), text.size());
  if (text.substr(0, first_end) != header()) {
    refuse("it does not begin with the line of such a file");
  }
  if (first_end == text.size()) return file_->append("\n");
  int number = 1;
  for (std::size_t begin = first_end + 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) {
      const std::string_view last = text.substr(begin);
      if (!last.starts_with("{\"key\":") && !last.starts_with("{\"request\":")) {
        refuse("its last line is no row");
      }
      log_warn("[--resume] {}: its last row was cut short and is measured again", name_);
      return file_->cut(static_cast<std::int64_t>(begin));
    }
    read_line(text.substr(begin, end - begin), number + 1);
    begin = end + 1;
  }
}

void RowsFile::read_line(std::string_view line, int number) {
  try {
    const Json json = Json::parse(line, name_);
    if (const Json* request = json.find("request")) {
      last_request_ = request->dump();
    } else {
      rows_[last_request_ + json.at("key").dump()] = json.at("row");
    }
  } catch (const std::exception&) {
    refuse(fmt::format("line {} is no finished row", number));
  }
}

void RowsFile::refuse(const std::string& reason) const {
  throw Error(ErrorCode::kInput, name_,
              fmt::format("it holds no finished rows of a command: {}", reason),
              "name another file, or one that does not exist yet");
}

}  // namespace tracestep::cli
