#include "lab/compare/merge.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "lab/compare/result_file.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/report/column_facts.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

// Rows of a part, for the checker: with the environment that they were measured in, and under the
// name of a table of their own, because parts were measured at different times.
std::vector<ResultRow> rows_of(Table table, const PartResult& part) {
  if (!part.label.empty()) {
    table.columns.push_back(text_column("table"));
    for (auto& row : table.rows) row.emplace_back("of " + part.label);
  }
  return tracestep::rows_of(table, part.document.at("environment"));
}

// A column may hold numbers in one part and nothing in another, where results do not say its kind.
void widen(Table& out, const Table& part) {
  for (std::size_t c = 0; c < out.columns.size(); ++c) {
    ColumnKind &kind = out.columns[c].kind, other = part.columns[c].kind;
    if (kind == other) continue;
    std::vector<Json> values;
    for (const Table* table : {&std::as_const(out), &part}) {
      for (const auto& row : table->rows) values.push_back(row[c]);
    }
    kind = kind_of(values, kind == ColumnKind::kBytes || other == ColumnKind::kBytes);
  }
}

void append(const Table& part, const std::string& where, Table& out) {
  if (part.rows.empty()) return;
  if (out.rows.empty()) {
    out.columns = part.columns;
  } else if (!std::ranges::equal(part.columns, out.columns, {}, &Column::name, &Column::name)) {
    fail_input(where, "{} has other columns than in the parts before it", out.name);
  } else {
    widen(out, part);
  }
  out.rows.insert(out.rows.end(), part.rows.begin(), part.rows.end());
}

// The tables of one name from all parts.
struct Gathered {
  std::string name;
  std::vector<const PartResult*> of;  // by table
  std::vector<Table> tables;

  // True if the rows of all parts name their cell.
  bool have_cells(std::span<const std::string> divided) const {
    return std::ranges::all_of(tables, [&](const Table& table) {
      const auto has = [&](const std::string& column) {
        return table.index_of(column).has_value();
      };
      return table.rows.empty() || has("cell") || std::ranges::all_of(divided, has);
    });
  }
  bool are_copies() const {
    return tables.size() > 1 && std::ranges::all_of(tables, [&](const Table& table) {
             return table.rows == tables.front().rows &&
                    std::ranges::equal(table.columns, tables.front().columns, {}, &Column::name,
                                       &Column::name);
           });
  }
  // In the order of joined().
  std::vector<ResultRow> rows() const {
    std::vector<ResultRow> out;
    for (std::size_t i = 0; i < tables.size(); ++i) {
      for (ResultRow& row : rows_of(tables[i], *of[i])) out.push_back(std::move(row));
    }
    return out;
  }
  bool all_note(const std::string& note) const {
    return std::ranges::all_of(tables, [&](const Table& table) {
      return std::ranges::find(table.notes, note) != table.notes.end();
    });
  }
};

// Joins tables row behind row. A note that not all parts have begins with the label of its part.
Table joined(const Gathered& one) {
  Table out{.name = one.name, .title = one.tables.front().title};
  for (std::size_t i = 0; i < one.tables.size(); ++i) append(one.tables[i], one.of[i]->name, out);
  for (const std::string& note : one.tables.front().notes) {
    if (one.all_note(note)) out.notes.push_back(note);
  }
  for (std::size_t i = 0; i < one.tables.size(); ++i) {
    for (const std::string& note : one.tables[i].notes) {
      if (!one.all_note(note)) out.notes.push_back(one.of[i]->label + ": " + note);
    }
  }
  return out;
}

// The rows of `bench` are what the validity checker reads, so they are judged again, beside each
// other; those of other commands keep their verdicts.
bool is_judged(const Table& table) {
  return table.name == "bench" && std::ranges::any_of(table.columns, is_verdict_column);
}

void drop_verdicts(Table& table, const PartResult& part) {
  if (!is_judged(table)) return;
  const std::vector<std::string> old = validity_notes(rows_of(table, part));
  std::erase_if(table.notes,
                [&](const std::string& note) { return std::ranges::find(old, note) != old.end(); });
}

std::vector<Gathered> gather(std::span<const PartResult> parts, std::string_view primary) {
  std::vector<Gathered> out;
  for (const PartResult& part : parts) {
    for (Table& table : tables_of(part.document, part.name, primary)) {
      drop_verdicts(table, part);
      auto found = std::ranges::find(out, table.name, &Gathered::name);
      if (found == out.end()) found = out.insert(out.end(), Gathered{table.name, {}, {}});
      found->of.push_back(&part);
      found->tables.push_back(std::move(table));
    }
  }
  return out;
}

void check_part(const PartResult& part, const PartResult& first) {
  check_members(part.document, part.name);
  const std::string schema = text_at(part.document, "schema"),
                    expected = text_at(first.document, "schema");
  if (schema.empty()) fail_input(part.name, "it is no JSON result: there is no schema");
  if (schema != expected) fail_input(part.name, "its schema is {}, not {}", schema, expected);
}

}  // namespace

std::string other_machine(const Json& first, const Json& other) {
  std::vector<std::string> out;
  const Json missing;
  for (std::string_view item : {"cpu", "gpu", "threads", "commit"}) {
    const Json *a = first.find(item), *b = other.find(item);
    if (a == nullptr) a = &missing;
    if (b == nullptr) b = &missing;
    if (!(*a == *b)) out.push_back(fmt::format("{} {} and {}", item, a->dump(), b->dump()));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

Document merged(std::span<const PartResult> parts, std::span<const std::string> divided) {
  TRACESTEP_CHECK(!parts.empty(), "no parts");
  for (const PartResult& part : parts) check_part(part, parts.front());
  const std::string schema = text_at(parts.front().document, "schema");
  const Json& environment = parts.front().document.at("environment");
  Document out{schema, environment, {}};
  // Results of earlier versions do not name an only table.
  const std::size_t dot = schema.find('.'), end = schema.find('/');
  const std::string primary = schema.substr(dot + 1, end - dot - 1);
  std::vector<Gathered> all = gather(parts, primary);
  for (Gathered& one : all) {
    if (one.are_copies()) {
      out.tables.push_back(std::move(one.tables.front()));
      if (is_judged(out.tables.back())) {
        add_verdicts(out.tables.back(), rows_of(out.tables.back(), *one.of.front()));
      }
    } else if (&one == &all.front() || one.have_cells(divided)) {
      out.tables.push_back(joined(one));
      if (is_judged(out.tables.back())) add_verdicts(out.tables.back(), one.rows());
      show_unusual(out.tables.back());
    } else {
      for (std::size_t i = 0; i < one.tables.size(); ++i) {
        const std::string& label = one.of[i]->label;
        one.tables[i].name += (parts.size() > 1 ? "@" : "") + label;
        if (!label.empty() && !one.tables[i].title.empty()) one.tables[i].title += ": " + label;
        out.tables.push_back(std::move(one.tables[i]));
      }
    }
  }
  for (const PartResult& part : parts.subspan(1)) {
    const std::string other = other_machine(environment, part.document.at("environment"));
    if (other.empty()) continue;
    out.tables.front().notes.push_back(fmt::format("{} ran elsewhere: {}", part.label, other));
  }
  return out;
}

}  // namespace tracestep
