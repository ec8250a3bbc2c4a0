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
#include "base/signals.h"
#include "base/suggest.h"
#include "lab/report/writers.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

CapturedResult*& captured() {
  static CapturedResult* current = nullptr;
  return current;
}

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

// What stdout shows: the width and colours of a terminal, everything in a file or a pipe.
TextView view_of_terminal(bool is_wide) {
  if (isatty(STDOUT_FILENO) == 0) return {};
  TextView out{.width = 0,
               .has_colour = !env::no_color() && !env::dumb_terminal(),
               .way_out = " (--wide shows them, --columns chooses)"};
  winsize size{};
  if (!is_wide && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) out.width = size.ws_col;
  return out;
}

// The table with these columns alone; nothing when it lacks one.
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

// Each name once, those most like the asked one first.
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
  if (!output.path.empty()) check_writable(output.path, "output");
}

void write_text(std::string_view text, const std::filesystem::path& path) {
  if (!path.empty()) {
    write_file(path, text);
    return log_info("the result is in {}", path.string());
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    if (errno == EPIPE) end_by_broken_pipe();
    throw Error(ErrorCode::kOutput, "output",
                fmt::format("stdout cannot be written: {}", std::strerror(errno)));
  }
}

int status_after(std::size_t done, std::size_t planned, const StopSignal& stop,
                 std::string_view way_on) {
  if (done == planned) return 0;
  if (CapturedResult::is_on()) return stop.exit_status();
  if (done == 0) {
    log_warn("stopped by a signal: nothing was measured yet");
  } else {
    log_warn("stopped by a signal after {} of {} rows{}", done, planned, way_on);
  }
  return stop.exit_status();
}

CapturedResult::CapturedResult() {
  captured() = this;
}
CapturedResult::~CapturedResult() {
  captured() = nullptr;
}
bool CapturedResult::is_on() {
  return captured() != nullptr;
}

void write_tables(const OutputOptions& output, std::string schema, Json environment,
                  std::vector<Table> tables) {
  if (CapturedResult* const into = captured()) {
    into->result_ = Document{std::move(schema), std::move(environment), std::move(tables)};
    return;
  }
  if (!output.columns.empty()) tables = choose_columns(output.columns, tables);
  const Document document{std::move(schema), std::move(environment), std::move(tables)};
  if (output.format == Format::kText && output.path.empty()) {
    std::ostringstream text;
    tracestep::write_text(document, text, view_of_terminal(output.is_wide));
    return write_text(text.str(), {});
  }
  write_output(document, output.format, output.path.string());
  if (!output.path.empty()) log_info("the result is in {}", output.path.string());
}

}  // namespace tracestep::cli
