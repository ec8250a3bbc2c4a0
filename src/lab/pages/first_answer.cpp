#include "lab/pages/first_answer.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "embedded/command_pages.h"
#include "lab/pages/compose.h"

namespace tracestep::pages {
namespace {

// Returns the command's name in a schema: "bench" of "tracestep.bench/1".
std::string_view short_name(std::string_view schema) {
  const std::size_t dot = schema.find('.');
  if (dot != std::string_view::npos) schema.remove_prefix(dot + 1);
  return schema.substr(0, schema.find('/'));
}

// Returns the pages of a file of commands/; empty: there is no such file.
std::span<const Page> pages_of(std::string_view file) {
  static const auto all = [] {
    std::map<std::string, std::vector<Page>, std::less<>> out;
    for (const command_pages::File& each : command_pages::files()) {
      out.emplace(each.name, parse(each.text));
    }
    return out;
  }();
  const auto found = all.find(file);
  return found == all.end() ? std::span<const Page>() : std::span<const Page>(found->second);
}

bool is_of_command(const Page& page) {
  return page.head.size() == 3 && page.head[1] == "command";
}

// Returns a table's kind, as its name begins: "kernels" of "kernels@small context 128 step".
std::string_view kind_of(const Table& table) {
  return std::string_view(table.name).substr(0, table.name.find('@'));
}

ColumnKind kind_of(const Json& value) {
  if (value.is_string()) return ColumnKind::kText;
  if (value.is_bool()) return ColumnKind::kBool;
  return value.is_int() ? ColumnKind::kInt : ColumnKind::kReal;
}

Table machine_table(const Json& environment) {
  Table out{.name = "machine"};
  std::vector<Json> row;
  for (const auto& [name, value] : environment.members()) {
    if (!value.is_string() && !value.is_bool() && !value.is_number()) continue;
    out.columns.push_back({.name = name, .kind = kind_of(value)});
    row.push_back(value);
  }
  out.add_row(std::move(row));
  return out;
}

void mark_results(const Page& page, std::vector<Table>& tables, std::vector<std::string>& done) {
  for (const Shown& shown : shown_by(page)) {
    if (std::ranges::find(done, shown.table) != done.end()) continue;
    done.push_back(shown.table);
    for (Table& table : tables) {
      if (kind_of(table) != shown.table) continue;
      for (Column& column : table.columns) {
        column.is_result = std::ranges::find(shown.columns, column.name) != shown.columns.end();
      }
    }
  }
}

// Adds tables that pages read besides those of the result: the machine, and, of tables for several
// cells, the first of each kind under the name of the kind.
void add_known_to_pages(const Json& environment, std::vector<Table>& tables) {
  for (std::size_t i = 0, own = tables.size(); i < own; ++i) {
    const std::string kind(kind_of(tables[i]));
    const bool is_there = std::ranges::find(tables, kind, &Table::name) != tables.end();
    if (is_there) continue;
    Table first = tables[i];
    first.name = kind;
    tables.push_back(std::move(first));
  }
  tables.push_back(machine_table(environment));
}

std::optional<std::string> sentence_of(const Page& page, std::span<const Table> tables) {
  try {
    const Composed said = compose(page, Evidence(tables));
    const std::string more = said.more.words();
    return said.lead.words() + (more.empty() ? "" : " ") + more;
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

// Names the first table of this kind that has rows, else the first table that has some.
std::string main_table(std::string_view kind, std::span<const Table> tables) {
  const Table* first = nullptr;
  for (const Table& table : tables) {
    if (table.rows.empty()) continue;
    if (kind_of(table) == kind) return table.name;
    if (first == nullptr) first = &table;
  }
  return first == nullptr ? "" : first->name;
}

}  // namespace

std::span<const Page> answer_pages(std::string_view schema) {
  const std::span<const Page> all = pages_of(short_name(schema));
  return all.subspan(!all.empty() && is_of_command(all.front()) ? 1 : 0);
}

const Page& command_page(std::string_view command) {
  const std::span<const Page> all = pages_of(command);
  TRACESTEP_CHECK(!all.empty() && is_of_command(all.front()), "{} has no page", command);
  return all.front();
}

std::vector<Shown> shown_by(const Page& page) {
  std::vector<Shown> out;
  for (const auto& [label, text] : page.labelled) {
    if (label != "Shows") continue;
    const std::size_t colon = text.find(": ");
    out.push_back({text.substr(0, colon),
                   colon == text.npos ? std::vector<std::string>()
                                      : split(std::string_view(text).substr(colon + 2), ",")});
  }
  return out;
}

std::optional<FirstAnswer> first_answer(std::string_view schema, std::vector<Table>& tables,
                                        const Json& environment) {
  const std::span<const Page> pages = answer_pages(schema);
  std::optional<FirstAnswer> out;
  std::vector<std::string> done;
  const std::size_t own = tables.size();
  add_known_to_pages(environment, tables);
  for (const Page& page : pages) {
    const std::optional<std::string> sentence = sentence_of(page, tables);
    if (!sentence || sentence->empty()) continue;
    const std::vector<Shown> shown = shown_by(page);
    out = {*sentence, shown.empty() ? "" : shown.front().table};
    mark_results(page, tables, done);
    break;
  }
  tables.resize(own);
  for (const Page& page : pages) mark_results(page, tables, done);  // of the other tables
  if (out) out->table = main_table(out->table, tables);
  return out;
}

std::vector<Chart> answer_charts(std::string_view schema, std::vector<Table> tables,
                                 const Json& environment) {
  std::vector<Chart> out;
  const std::size_t own = tables.size();
  add_known_to_pages(environment, tables);
  const Evidence evidence(tables);
  const auto add = [&](Chart chart) {
    const auto is_it = [&](const Chart& other) {
      return other.table == chart.table && other.options == chart.options;
    };
    if (std::ranges::none_of(out, is_it)) out.push_back(std::move(chart));
  };
  for (const Page& page : answer_pages(schema)) {
    if (page.charts.empty()) continue;
    try {
      const Composed said = compose(page, evidence);
      for (std::size_t i = 0; i < said.charts.size(); ++i) {
        Chart chart = said.charts[i];
        const std::string kind = chart.table;
        const bool is_first = i == 0;  // the first chart shows the answer
        const auto is_drawn = [&](const Table& table) {
          return kind_of(table) == kind && table.rows.size() > 1;  // one row is no chart
        };
        const std::span<const Table> given = std::span(tables).first(own);
        const bool is_only = std::ranges::count_if(given, is_drawn) == 1;
        for (const Table& table : given) {
          if (!is_drawn(table)) continue;
          chart.table = table.name;
          const std::string which =
              table.title.empty() || is_first ? page.text("Question") : table.title + ":";
          chart.title = is_only && is_first ? said.lead.words() : which + " " + label_of(chart);
          add(chart);
        }
      }
    } catch (const Unsupported&) {
    }
  }
  return out;
}

}  // namespace tracestep::pages
