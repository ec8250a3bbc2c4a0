// Reads a stored study, in JSON or in a page that carries it, back into sections.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "lab/compare/result_file.h"
#include "lab/measure/statistics.h"
#include "lab/report/column_facts.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

Json document_of(std::string_view text, const std::string& name) {
  return text.starts_with("<!DOCTYPE") ? result_of_page(text, name) : result_document(text, name);
}

// True if the tables say the kind of each column; pages of earlier versions do not.
bool says_kinds(const Json& tables) {
  return std::ranges::all_of(tables.members(), [](const auto& table) {
    const Json* columns = table.second.find("columns");
    return columns != nullptr && std::ranges::all_of(columns->members(), [](const auto& column) {
             return column.second.find("kind") != nullptr;
           });
  });
}

[[noreturn]] void refuse(const std::string& name, const Table& table, std::size_t row,
                         const std::string& what) {
  throw Error(ErrorCode::kInput, name,
              fmt::format("table {}, row {}: {}", table.name, row + 1, what),
              "give the file as tracestep study wrote it: a report is made of what was measured");
}

// Refuses what no study writes: a time below nothing or of weeks, a statistic that is not that of
// its samples, negative counts, bytes and losses.
void check_numbers(const Table& table, const std::string& name) {
  constexpr double kMostMs = 1e9, kRounding = 1e-6;
  constexpr std::string_view kSamples = "samples_ms";
  const std::pair<std::string_view, double (*)(std::span<const double>)> kStatistics[] = {
      {"median_ms", median_of}, {"mean_ms", mean_of}, {"std_ms", sample_std_of}};
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    const bool is_samples = column.name.ends_with(kSamples);
    const bool is_count = column.kind == ColumnKind::kBytes || column.kind == ColumnKind::kInt;
    const bool is_difference = column.name.find("difference") != column.name.npos;
    const bool is_least_nothing =
        column.name == "loss" || column.name == "validation_loss" || (is_count && !is_difference);
    const std::string part =
        is_samples ? column.name.substr(0, column.name.size() - kSamples.size()) : std::string();
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      const Json& cell = table.rows[row][i];
      if (is_least_nothing && cell.is_number() && !(cell.as_double() >= 0)) {
        refuse(name, table, row, fmt::format("{} is {}", column.name, cell.dump()));
      }
      if (!is_samples || !cell.is_array()) continue;
      std::vector<double> samples;
      for (const Json& ms : cell.items()) {
        if (!ms.is_number() || !(ms.as_double() >= 0) || ms.as_double() > kMostMs) {
          refuse(name, table, row,
                 fmt::format("{} has {}, which is no time", column.name, ms.dump()));
        }
        samples.push_back(ms.as_double());
      }
      if (samples.size() < 2) continue;
      for (const auto& [statistic, of] : kStatistics) {
        const auto at = table.index_of(part + std::string(statistic));
        if (!at || !table.rows[row][*at].is_number()) continue;
        const double said = table.rows[row][*at].as_double(), is = of(samples);
        if (std::abs(said - is) > kRounding * std::max(is, mean_of(samples))) {
          refuse(name, table, row,
                 fmt::format("{}{} is {:.6g}, and that of its samples {:.6g}", part, statistic,
                             said, is));
        }
      }
    }
  }
}

}  // namespace

StoredStudy stored_study(std::string_view text, const std::string& name) {
  const Json document = document_of(text, name);
  const Json* tables = document.find("tables");
  const bool is_study = text_at(document, "schema") == kStudySchema && tables != nullptr;
  if (!is_study || tables->find("readings") == nullptr) {
    throw Error(ErrorCode::kInput, name, "it is no study as tracestep study stores one",
                "give study.json or study.html as tracestep study writes them");
  }
  if (!says_kinds(*tables)) {
    fail_input(name,
               "it is of a version that did not say what its columns are: only that one reads it");
  }
  std::map<std::string, Table> all;
  std::vector<std::string> order;
  for (const auto& [table, json] : tables->members()) {
    constexpr std::string_view kMadeAnew[] = {"subject", "summary", "answers", "readings"};
    if (std::ranges::find(kMadeAnew, table) != std::end(kMadeAnew)) continue;
    all[table] = table_of(table, json, name);
    check_numbers(all[table], name);
    order.push_back(table);
  }
  const Json* const environment = document.find("environment");
  if (environment == nullptr) fail_input(name, "it does not say where it was measured");
  StoredStudy out{.sections = {}, .environment = *environment};
  for (const Json& row : tables->at("readings").at("rows").items()) {
    out.sections.push_back({.id = text_at(row, "id"),
                            .title = text_at(row, "title"),
                            .reading = text_at(row, "reading")});
    const Json* names = row.find("tables");
    if (names == nullptr) continue;
    for (const Json& table : names->items()) {
      if (auto found = all.extract(table.as_string())) {
        out.sections.back().tables.push_back(std::move(found.mapped()));
      }
    }
  }
  if (all.empty()) return out;
  out.sections.push_back({.id = "others", .title = "All tables"});
  for (const std::string& table : order) {
    if (all.contains(table)) out.sections.back().tables.push_back(std::move(all.at(table)));
  }
  return out;
}

}  // namespace tracestep
