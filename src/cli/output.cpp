#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>

#include <fmt/ranges.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "cli/pictures.h"
#include "lab/measure/marks.h"
#include "lab/pages/first_answer.h"
#include "lab/report/writers.h"
#include "weights/model_notes.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

// The path of the file that writing to `path` would create or replace: links are followed, also
// when their target does not exist yet.
fs::path resolved(const fs::path& path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  fs::path out = fs::absolute(path, error);
  for (int i = 0; i < kMostLinks && fs::is_symlink(out, error); ++i) {
    out = out.parent_path() / fs::read_symlink(out, error);
  }
  const fs::path canonical = fs::weakly_canonical(out, error);
  return error ? out.lexically_normal() : canonical;
}

bool is_same_file(const fs::path& a, const fs::path& b) {
  if (a.empty() || b.empty() || is_stream(a) || is_stream(b)) return false;
  std::error_code error;
  return fs::equivalent(a, b, error) || resolved(a) == resolved(b);
}

constexpr std::size_t kScreenColumns = 100, kScreenLines = 40;
constexpr std::size_t kFootLines = 3, kMostNames = 8;
constexpr std::string_view kWayOut = " (--all shows them, --columns chooses)";

// Returns how stdout shows text: a terminal has colours and a width, anything else neither.
TextView view_of_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return {};
  TextView out{.has_colour = !env::no_color() && !env::dumb_terminal(), .way_out = kWayOut};
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) out.width = size.ws_col;
  return out;
}

// The table with these columns alone; nullopt: it lacks one.
std::optional<Table> with_columns(const Table& table, const std::vector<std::string>& names) {
  Table out = table;
  out.columns.clear();
  out.rows.assign(table.rows.size(), {});
  for (const std::string& name : names) {
    const std::optional<std::size_t> index = table.index_of(name);
    if (!index) return {};
    out.columns.push_back(table.columns[*index]);
    out.columns.back().data_only = out.columns.back().if_varies = false;  // asked for
    for (std::size_t r = 0; r < table.rows.size(); ++r)
      out.rows[r].push_back(table.rows[r][*index]);
  }
  return out;
}

// Removes repeated names; those most like the asked one come first.
std::vector<std::string> nearest_first(std::string_view asked, std::vector<std::string> names) {
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  std::ranges::stable_sort(names, {}, [&](const std::string& name) {
    const bool is_part = name.find(asked) != std::string::npos;
    return is_part ? 0 : edit_distance(asked, name);
  });
  return names;
}

// The tables that have all these columns, with them alone and in this order.
std::vector<Table> choose_columns(const std::vector<std::string>& names,
                                  const std::vector<Table>& tables) {
  std::vector<std::string> known;
  std::vector<Table> out;
  for (const Table& table : tables) {
    for (const Column& column : table.columns) known.push_back(column.name);
    if (auto chosen = with_columns(table, names)) out.push_back(std::move(*chosen));
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw Error(ErrorCode::kUsage, "--columns",
                fmt::format("there is no column \"{}\"{}", name, did_you_mean(name, known)),
                fmt::format("columns are {}", fmt::join(nearest_first(name, known), ", ")));
  }
  if (out.empty()) {
    throw Error(ErrorCode::kUsage, "--columns", "no table has all of them",
                "name columns of one table");
  }
  return out;
}

}  // namespace

void check_apart(std::span<const NamedPath> inputs, std::span<const NamedPath> outputs) {
  const auto check = [](const NamedPath& output, const NamedPath& other, const char* loss) {
    if (!is_same_file(output.path, other.path)) return;
    throw Error(
        ErrorCode::kUsage, output.flag,
        fmt::format("{} is the file of {} as well{}", output.path.string(), other.flag, loss),
        "name another file");
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (const NamedPath& input : inputs) check(outputs[i], input, ", which would be lost");
    for (const NamedPath& other : outputs.first(i)) check(outputs[i], other, "");
  }
}

void probe_output(const OutputOptions& output) {
  if (!output.path.empty()) check_writable(output.path, "output"_field);
}

void write_text(std::string_view text, const std::filesystem::path& path) {
  if (!path.empty()) {
    write_file(path, text);
    return log_info("the result is in {}", path.string());
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) end_by_broken_pipe();
    throw Error(ErrorCode::kOutput, "output"_field,
                fmt::format("stdout cannot be written: {}", std::strerror(errno)));
  }
}

std::size_t screen_columns() {
  const std::size_t width = view_of_terminal().width;
  return width > 0 ? std::min(width, kScreenColumns) : kScreenColumns;
}

namespace {

// The kind of a table, which its name begins with: "kernels" of "kernels@small context 128 step".
std::string kind_of(const Table& table) {
  return table.name.substr(0, table.name.find('@'));
}

// The tables that have these names, in the order of the names. An unknown name gives a warning and
// costs no result.
std::vector<Table> choose_tables(const std::vector<std::string>& names,
                                 const std::vector<Table>& tables) {
  std::vector<std::string> known;
  std::vector<Table> out;
  for (const Table& table : tables) {
    if (std::ranges::find(known, kind_of(table)) == known.end()) known.push_back(kind_of(table));
  }
  const auto is_chosen = [&](const Table& table) {
    return std::ranges::find(out, table.name, &Table::name) != out.end();
  };
  for (const std::string& name : names) {
    bool is_there = false;
    for (const Table& table : tables) {
      if (name != table.name && name != kind_of(table)) continue;
      is_there = true;
      if (!is_chosen(table)) out.push_back(table);
    }
    if (is_there) continue;
    log_warn("[--tables] there is no table {} here{}; there are {}", name,
             did_you_mean(name, known), fmt::join(known, ", "));
  }
  return out.empty() ? tables : out;
}

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Says "more: 12 columns, 3 notes (--all); tables clocks, kernels (--tables NAME)"; empty: no more.
std::string foot_of(const LeftOut& left, std::span<const Table> tables, const std::string& shown) {
  std::vector<std::string> parts, names;
  if (!left.columns.empty()) parts.push_back(counted(left.columns.size(), "column"));
  if (left.rows > 0) parts.push_back(counted(left.rows, "row"));
  if (left.notes > 0) parts.push_back(counted(left.notes, "note"));
  for (const Table& table : tables) {
    const std::string kind = kind_of(table);
    const bool is_known = std::ranges::find(names, kind) != names.end();
    if (!table.rows.empty() && table.name != shown && !is_known) names.push_back(kind);
  }
  std::string out;
  if (!parts.empty()) out = fmt::format("more: {} (--all)", fmt::join(parts, ", "));
  if (names.empty()) return out;
  if (names.size() > kMostNames) {
    const std::size_t others = names.size() - kMostNames;
    names.resize(kMostNames);
    names.push_back(fmt::format("and {} others", others));
  }
  return out + fmt::format("{}{} {} (--tables NAME)", out.empty() ? "more: " : "; ",
                           names.size() == 1 ? "table" : "tables", fmt::join(names, ", "));
}

// Returns the notes of tables without rows, in lines: that nothing differs, that nothing fits.
std::vector<std::string> words_of_empty(std::span<const Table> tables, std::size_t width) {
  std::vector<std::string> out;
  for (const Table& table : tables) {
    if (!table.rows.empty() || table.notes.empty()) continue;
    const std::string lead = table.title.empty() ? "" : table.title + ": ";
    for (std::string& line : in_lines(lead + table.notes[0], width)) out.push_back(std::move(line));
  }
  return out;
}

// Writes the answer, then, in the rest of the screen, the table that bears it out.
std::string one_screen(std::vector<Table>& tables, const pages::FirstAnswer& answer,
                       const TextView& view, bool is_terminal) {
  std::ostringstream out;
  // In a pipe the answer is one line.
  for (const std::string& line : in_lines(answer.sentence, is_terminal ? view.width : 0)) {
    out << line << '\n';
  }
  const auto found = std::ranges::find(tables, answer.table, &Table::name);
  if (found == tables.end()) return out.str();
  out << '\n';
  mark_verdicts(*found, locale_has_utf8());
  std::vector<std::string> behind = words_of_empty(tables, view.width);
  TextView rest = view;
  rest.lines = kScreenLines - kFootLines - 3 - in_lines(answer.sentence, view.width).size() -
               std::min(behind.size(), kFootLines);
  const LeftOut left = write_table(on_screen(*found), rest, out);
  behind.resize(std::min(behind.size(), kFootLines));
  if (!behind.empty()) behind.insert(behind.begin(), "");
  if (const std::string foot = foot_of(left, tables, answer.table); !foot.empty()) {
    behind.emplace_back();
    for (std::string& line : in_lines(foot, view.width)) behind.push_back(std::move(line));
  }
  for (const std::string& line : behind) out << line << '\n';
  return out.str();
}

// A result that answers a question, as text for a person; nullopt: it answers none.
std::optional<std::string> answer_text(const OutputOptions& output, std::string_view schema,
                                       const Json& environment, std::vector<Table>& tables) {
  const std::optional<pages::FirstAnswer> answer = pages::first_answer(schema, tables, environment);
  if (!answer) return std::nullopt;
  TextView view = view_of_terminal();
  const bool is_terminal = view.width > 0;
  view.width = screen_columns();
  view.way_out = {};
  if (!output.is_all && output.tables.empty())
    return one_screen(tables, *answer, view, is_terminal);
  if (!output.tables.empty()) tables = choose_tables(output.tables, tables);
  if (output.is_all) view.width = 0;
  view.way_out = kWayOut;
  for (Table& table : tables) {
    if (output.is_all) break;
    mark_verdicts(table, locale_has_utf8());
    table = on_screen(table);
  }
  std::ostringstream out;
  for (const std::string& line : in_lines(answer->sentence, is_terminal ? view.width : 0)) {
    out << line << '\n';
  }
  out << '\n';
  tracestep::write_text({.schema = {}, .environment = {}, .tables = std::move(tables)}, out, view);
  return out.str();
}

// Returns the answer as a sentence, or ""; marks the columns of `tables` that a screen shows.
std::string answer_of(std::string_view schema, std::vector<Table>& tables,
                      const Json& environment) {
  const std::optional<pages::FirstAnswer> answer = pages::first_answer(schema, tables, environment);
  return answer ? answer->sentence : std::string();
}

}  // namespace

bool is_page(const OutputOptions& output) {
  return output.format == Format::kText && output.path.extension() == kPageEnding;
}

void write_tables(const OutputOptions& output, std::string schema, Json environment,
                  std::vector<Table> tables, std::vector<Table> drawn) {
  if (!output.pictures.empty()) {
    drawn.insert(drawn.end(), tables.begin(), tables.end());
    write_pictures(output.pictures, pages::answer_charts(schema, drawn, environment), drawn);
  }
  const bool is_screen = output.format == Format::kText && output.path.empty();
  if (is_screen && output.columns.empty()) {
    if (const auto text = answer_text(output, schema, environment, tables)) {
      return write_text(*text, {});
    }
  }
  if (!is_screen && !tables.empty()) {  // a screen has said them already
    for (const std::string& note : model_notes()) {
      std::vector<std::string>& notes = tables.front().notes;
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    }
  }
  std::string answer;
  if (output.format == Format::kJson) {  // JSON stores the columns that this call marks
    answer = answer_of(schema, tables, environment);
  } else if (!output.path.empty()) {
    std::vector<Table> copy = tables;
    answer = answer_of(schema, copy, environment);
  }
  if (!output.tables.empty() && output.format != Format::kJson) {
    tables = choose_tables(output.tables, tables);
  }
  if (!output.columns.empty()) tables = choose_columns(output.columns, tables);
  const Document document{std::move(schema), std::move(environment), std::move(tables), answer};
  if (is_screen) {
    std::ostringstream text;
    TextView view = view_of_terminal();
    if (output.is_all) view.width = 0;
    tracestep::write_text(document, text, view);
    return write_text(text.str(), {});
  }
  write_output(document, output.format, output.path.string());
  if (output.path.empty()) return;
  if (!answer.empty()) log_info("{}", answer);
  log_info("the result is in {}", output.path.string());
}

}  // namespace tracestep::cli
