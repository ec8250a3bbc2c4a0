#include "lab/study/study.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "lab/report/columns.h"
#include "lab/study/subject.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

// Shows vocabularies in tables where models of one size have several.
void show_vocabularies(std::vector<StudySection>& sections) {
  const auto for_each_model = [&](auto&& visit) {
    for (StudySection& section : sections) {
      for (Table& table : section.tables) {
        const auto size = table.index_of("size"), vocab = table.index_of("vocab");
        if (!size || !vocab || !table.index_of("cell")) continue;
        for (const auto& row : table.rows) {
          const bool is_model = row[*vocab].is_int() && row[*size].is_string();
          if (is_model) visit(table.columns[*vocab], row[*size].as_string(), row[*vocab]);
        }
      }
    }
  };
  std::map<std::string, std::set<std::int64_t>> vocabularies;
  for_each_model([&](const Column&, const std::string& size, const Json& vocab) {
    vocabularies[size].insert(vocab.as_int());
  });
  for_each_model([&](Column& column, const std::string& size, const Json&) {
    if (vocabularies[size].size() > 1) column.data_only = false;
  });
}

Table reading_table(const std::vector<StudySection>& sections) {
  Table table{.name = "readings", .title = "The sections in words"};
  table.columns = {text_column("id"), text_column("title"), text_column("reading"),
                   structured_column("tables", "their names")};
  for (const StudySection& s : sections) {
    Json names = Json::array();
    for (const Table& t : s.tables) names.push_back(t.name);
    table.add_row({s.id, s.title, s.reading, std::move(names)});
  }
  return table;
}

// True if a chart can be drawn: one without rows, or whose rows nothing tells apart, cannot.
bool can_draw(const Chart& chart, std::span<const Table> tables) {
  try {
    return !draw_chart(chart, tables).empty();
  } catch (const Error& error) {
    log_warn("a chart is left out: {}", error.what());
    return false;
  }
}

}  // namespace

std::vector<StudySection> in_reading_order(std::vector<StudySection> sections) {
  show_vocabularies(sections);
  std::ranges::stable_sort(sections, {}, place_of);
  return sections;
}

StudyReport with_answers(std::vector<StudySection> sections) {
  StudyReport out;
  out.sections = std::move(sections);
  for (const StudySection& section : out.sections) {
    out.tables.insert(out.tables.end(), section.tables.begin(), section.tables.end());
  }
  // The first table is the one that other programs compare runs by.
  std::ranges::stable_partition(out.tables, [](const Table& t) { return t.name == "cells"; });
  out.tables.push_back(subject_table(out.tables));
  out.summary = answer_all(summary_questions(), out.tables);
  out.answers = answer_all(questions(), out.tables);
  return out;
}

StudyReport answered(std::vector<StudySection> sections) {
  StudyReport out = with_answers(std::move(sections));
  for (auto* answers : {&out.summary, &out.answers}) {
    for (Answer& a : *answers) {
      std::erase_if(a.charts, [&](const Chart& c) { return !can_draw(c, out.tables); });
    }
  }
  out.tables.push_back(answers_table("summary", "The report in short", out.summary));
  out.tables.push_back(answers_table("answers", "Questions, and what this run says", out.answers));
  out.tables.push_back(reading_table(out.sections));
  return out;
}

Json study_json(const StudyReport& report, const Json& environment) {
  return to_json({kStudySchema, environment, report.tables});
}

}  // namespace tracestep
