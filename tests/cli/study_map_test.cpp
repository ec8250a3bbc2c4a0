// The map of docs/study.md, row by row: every command runs, the cells that it names are there and
// filled, and they say something else when the run is another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

// The flags that M stands for in the map, as the page says.
constexpr const char* kModel =
    "--d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 64 --batch 2 --context 8 --threads 1";

struct MapRow {
  std::string what;     // "one tensor of the residual stream"
  std::string command;  // "memory --predict M"
  std::string table, column;
  std::string change;  // flags that make another run; empty: its values are those of the machine
};

std::string content_of_page() {
  return content_of(testing::source_folder() / "docs" / "study.md");
}

// The cells of a line "| a | `b` |", without blanks and quotes around code.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out;
  for (std::size_t at = line.find('|'); at != std::string::npos && at + 1 < line.size();) {
    const std::size_t end = std::min(line.find('|', at + 1), line.size());
    std::string cell = line.substr(at + 1, end - at - 1);
    const auto blank = [](char c) { return c == ' ' || c == '`'; };
    cell.erase(0, static_cast<std::size_t>(std::ranges::find_if_not(cell, blank) - cell.begin()));
    while (!cell.empty() && blank(cell.back())) cell.pop_back();
    out.push_back(std::move(cell));
    at = end;
  }
  return out;
}

std::vector<MapRow> read_map() {
  const std::string page = content_of_page();
  std::vector<MapRow> out;
  std::size_t at = page.find("| what | command |");
  at = page.find('\n', page.find('\n', at) + 1) + 1;  // behind the line of dashes
  while (page.compare(at, 1, "|") == 0) {
    const std::size_t end = page.find('\n', at);
    const std::vector<std::string> cells = cells_of(page.substr(at, end - at));
    EXPECT_EQ(cells.size(), 4u) << page.substr(at, end - at);
    if (cells.size() != 4) break;
    const std::size_t dot = cells[2].find('.');
    out.push_back({cells[0], cells[1], cells[2].substr(0, dot),
                   dot == std::string::npos ? "" : cells[2].substr(dot + 1), cells[3]});
    at = end + 1;
  }
  return out;
}

// Adds the flags of `more`, in place of the same flags that are there.
void replace_flags(std::vector<std::string>& words, const std::string& more) {
  const std::vector<std::string> added = words_of(more);
  for (std::size_t i = 0; i < added.size(); ++i) {
    const bool has_value = i + 1 < added.size() && !added[i + 1].starts_with("--");
    const auto found = std::ranges::find(words, added[i]);
    if (found == words.end()) {
      words.push_back(added[i]);
      if (has_value) words.push_back(added[i + 1]);
    } else if (has_value) {
      *(found + 1) = added[i + 1];
    }
    if (has_value) ++i;
  }
}

std::vector<std::string> words_with(const std::string& command, const std::string& change) {
  const std::string text = command + " ";
  const std::size_t model = text.find(" M ");
  std::vector<std::string> words = words_of(text.substr(0, model));
  if (model != std::string::npos) {
    replace_flags(words, kModel);
    replace_flags(words, text.substr(model + 3));
  }
  replace_flags(words, change);
  words.insert(words.end(), {"--format", "json"});
  return words;
}

// Runs each command once.
class Runs {
 public:
  const Json& of(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += word + " ";
    const auto found = known_.find(line);
    if (found != known_.end()) return found->second;
    const ProgramRun run = run_tracestep(words, {.folder = folder_.path()});
    EXPECT_EQ(run.status, 0) << line << "\n" << run.err;
    return known_[line] = run.status == 0 ? Json::parse(run.out, line) : Json::object();
  }

 private:
  TempFolder folder_;
  std::map<std::string, Json> known_;
};

// The cells of a column that are not empty; the table may be the only one.
std::vector<std::string> filled(const Json& result, const MapRow& row) {
  const Json* tables = result.find("tables");
  const Json* table = tables == nullptr ? &result : tables->find(row.table);
  std::vector<std::string> out;
  if (table == nullptr || table->find("rows") == nullptr) return out;
  for (const Json& cells : table->at("rows").items()) {
    const Json* cell = cells.find(row.column);
    if (cell != nullptr && !cell->is_null()) out.push_back(cell->dump());
  }
  return out;
}

TEST(StudyMapTest, EveryRowRunsAndItsCellsFollowTheRun) {
  const std::vector<MapRow> map = read_map();
  EXPECT_GE(map.size(), 70u);
  Runs runs;
  for (const MapRow& row : map) {
    SCOPED_TRACE(row.what + ": " + row.command);
    const std::vector<std::string> cells = filled(runs.of(words_with(row.command, "")), row);
    EXPECT_FALSE(cells.empty()) << row.table << "." << row.column << " is not there, or empty";
    if (row.change.empty()) continue;
    EXPECT_NE(filled(runs.of(words_with(row.command, row.change)), row), cells)
        << row.table << "." << row.column << " does not depend on " << row.change;
  }
}

TEST(StudyMapTest, ThePageSaysWhatTheModelOfTheMapIs) {
  EXPECT_NE(content_of_page().find(kModel), std::string::npos);
}

}  // namespace
}  // namespace tracestep
