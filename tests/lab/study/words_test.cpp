// Every table and text of a report uses the same word for the same thing.
#include <gtest/gtest.h>

#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using testing::measured_study;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Kernels of libraries have names of their own.
bool names_kernels(const Column& column) {
  return column.name == "Name" || column.name.ends_with("kernel");
}

TEST(WordsTest, MatrixProductsAreCalledSoEverywhere) {
  std::size_t products = 0;
  const auto check = [&](const std::string& text, const std::string& where) {
    EXPECT_EQ(lower(text).find("gemm"), std::string::npos) << where << ": " << text;
    products += lower(text).find("matrix product") != std::string::npos;
  };
  for (const Table& table : measured_study().tables) {
    check(table.title, table.name);
    for (const std::string& note : table.notes) check(note, table.name);
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const Column& column = table.columns[i];
      for (const std::string* text : {&column.name, &column.title, &column.description}) {
        check(*text, table.name);
      }
      if (names_kernels(column)) continue;
      for (const auto& row : table.rows) {
        if (row[i].is_string()) check(row[i].as_string(), table.name + "." + column.name);
      }
    }
  }
  for (const StudySection& section : measured_study().sections) {
    check(section.title + section.reading, section.id);
  }
  EXPECT_GT(products, 10u);  // it does speak of them
}

}  // namespace
}  // namespace tracestep
