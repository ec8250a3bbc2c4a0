// Noise of a tenth in a row that an answer states a time of is a mark on it, or the answer says
// that noise leaves it open; and what a stored study cannot have been measured to be is refused.
#include "lab/study/sentences_fixture.h"

#include "base/error.h"

namespace tracestep {
namespace {

std::vector<Question> all_questions() {
  std::vector<Question> out(questions().begin(), questions().end());
  out.insert(out.end(), summary_questions().begin(), summary_questions().end());
  return out;
}

// The columns of samples that the row was read by.
std::vector<std::string> read_samples(const RowRef& ref, const Table& table) {
  std::vector<std::string> out;
  for (const std::string& name : ref.columns) {
    const auto at = table.index_of(name);
    if (at && name.ends_with("samples_ms") && table.rows[ref.row][*at].is_array())
      out.push_back(name);
  }
  return out;
}

TEST(PlantedNoiseTest, AnAnswerWhoseRowIsATenthUnsureIsMarkedOrSaysSo) {
  std::size_t marked = 0, open = 0;
  for (const Question& question : all_questions()) {
    const Answer whole = answer(question, small_study().tables);
    if (whole.refused || whole.standing != Standing::kSound) continue;
    for (const RowRef& ref : rows_in_text(whole)) {
      std::vector<Table> tables = small_study().tables;
      Table& table = *std::ranges::find(tables, ref.table, &Table::name);
      const auto verdict = std::ranges::find_if(table.columns, is_verdict_column);
      const std::vector<std::string> columns = read_samples(ref, table);
      if (columns.empty() || verdict == table.columns.end()) continue;
      std::vector<Json>& row = table.rows[ref.row];
      for (const std::string& name : columns) {
        Json& cell = row[table.index_of(name).value()];
        const double ms = cell.items().front().as_double();
        Json::Array samples;
        for (int i = 0; i < 8; ++i) samples.emplace_back(ms * (i % 2 == 0 ? 0.9 : 1.1));
        cell = std::move(samples);
        const auto visits = table.index_of(
            name.substr(0, name.size() - std::string_view("samples_ms").size()) + "visit_samples");
        if (visits) row[*visits] = Json();
      }
      row[static_cast<std::size_t>(verdict - table.columns.begin())] = "doubt: unsteady";
      const Answer a = answer(question, tables);
      if (a.refused) continue;
      const std::string words = a.text.words();
      const bool is_open =
          words.find("oise") != words.npos || words.find("not apart") != words.npos;
      (is_open ? open : marked) += 1;
      EXPECT_TRUE(is_open || a.standing != Standing::kSound)
          << a.id << " by " << ref.table << " row " << ref.row << ": " << words;
    }
  }
  EXPECT_GT(marked, 20u);
}

// --- a stored study ------------------------------------------------------------------------------

std::string refusal_of(const std::string& path, Json value) {
  StudyReport report = small_study();
  cell_at(report.tables, path) = std::move(value);
  try {
    stored_study(study_json(report, Json::object()).dump(), "study.json");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(PlantedNoiseTest, NumbersThatNoStudyMeasuresAreRefusedByTableAndRow) {
  const std::string forward = "cells[size small; mode forward; ops fused].";
  EXPECT_EQ(refusal_of(forward + "peak_bytes", 4096), "");
  EXPECT_THAT(refusal_of(forward + "samples_ms", Json::Array{-1.0, 2.0}),
              HasSubstr("[study.json] table cells, row"));
  EXPECT_THAT(refusal_of(forward + "samples_ms", Json::Array{1e300, 1e300}),
              HasSubstr("which is no time"));
  EXPECT_THAT(refusal_of(forward + "mean_ms", 160.0), HasSubstr("that of its samples 80"));
  EXPECT_THAT(refusal_of(forward + "median_ms", -80.0), HasSubstr("median_ms is -80"));
  EXPECT_THAT(refusal_of(forward + "peak_bytes", -12), HasSubstr("peak_bytes is -12"));
  EXPECT_THAT(refusal_of("training[step 1].loss", -3.0), HasSubstr("loss is -3"));
}

}  // namespace
}  // namespace tracestep
