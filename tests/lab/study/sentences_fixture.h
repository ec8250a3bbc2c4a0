// The rows of a small study, and what is said of them when some are changed.
#pragma once

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/measure/validity.h"
#include "lab/report/columns.h"
#include "lab/study/answers.h"
#include "lab/study/claims.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {

using testing::cell_at;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::small_study;

class SentencesTest : public ::testing::Test {
 protected:
  void set(const std::string& cell, Json value) { cell_at(tables_, cell) = std::move(value); }
  // Sets a cell's samples: as many as given, all of this time, so that it is exact.
  void set_samples(const char* mode, double ms, std::size_t count) {
    set(fmt::format("cells[size small; mode {}; ops fused].samples_ms", mode),
        Json::Array(count, Json(ms)));
  }
  // Sets samples that lie so far around this time, and what the checker says of them.
  void set_noise(const std::string& row, double ms, double part) {
    Json::Array samples;
    for (int i = 0; i < 8; ++i) samples.push_back(ms * (i % 2 == 0 ? 1 - part : 1 + part));
    set(row + ".samples_ms", std::move(samples));
    set(row + ".verdict", "doubt: unsteady");
  }
  // The first table whose name begins with `begin`.
  Table& table_like(std::string_view begin) {
    const auto found = std::ranges::find_if(
        tables_, [&](const Table& table) { return table.name.starts_with(begin); });
    EXPECT_NE(found, tables_.end()) << begin;
    return *found;
  }
  static std::size_t column(const Table& table, std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(table.columns, name, &Column::name) -
                                    table.columns.begin());
  }
  Answer of(std::string_view id) { return of(id, questions()); }
  Answer of_summary(std::string_view id) { return of(id, summary_questions()); }
  std::string text_of(std::string_view id) { return of(id).text.words(); }

  std::vector<Table> tables_ = small_study().tables;

 private:
  Answer of(std::string_view id, std::span<const Question> all) {
    const auto found = std::ranges::find(all, id, &Question::id);
    EXPECT_NE(found, all.end()) << id;
    Answer out = answer(*found, tables_);
    EXPECT_THAT(testing::wrong_claims(out, tables_), ::testing::IsEmpty()) << out.text.words();
    return out;
  }
};

}  // namespace tracestep
