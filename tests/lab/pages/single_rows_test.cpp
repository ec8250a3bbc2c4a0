// For a table with one row a command claims nothing of all rows and compares none with itself.
#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/pages/cases.h"
#include "lab/pages/compose.h"
#include "lab/pages/first_answer.h"
#include "lab/pages/universal.h"

namespace tracestep::pages {
namespace {

// Each table with one of its rows.
std::vector<Table> single_rows(std::vector<Table> out, std::size_t which) {
  for (Table& table : out) {
    if (table.rows.size() < 2) continue;
    const std::vector<Json> row = table.rows[which % table.rows.size()];
    table.rows = {row};
  }
  return out;
}

// The first page that has an answer, as first_answer() takes it.
std::optional<Text> said_of(const std::string& schema, std::span<const Table> tables) {
  for (const Page& page : answer_pages("tracestep." + schema + "/1")) {
    try {
      Composed said = compose(page, Evidence(tables));
      if (said.lead.words().empty()) continue;
      said.lead += said.more;
      return said.lead;
    } catch (const Unsupported&) {
    }
  }
  return std::nullopt;
}

TEST(SingleRowsTest, NoCommandSaysOfAllRowsWhatOneRowShows) {
  std::size_t said = 0;
  for (const Case& c : cases()) {
    const std::vector<Table> whole = tables_of(c);
    std::size_t most = 1;
    for (const Table& table : whole) most = std::max(most, table.rows.size());
    for (std::size_t which = 0; which < most; ++which) {
      const auto text = said_of(c.schema, single_rows(whole, which));
      if (!text) continue;
      ++said;
      EXPECT_EQ(testing::universal_in(testing::own_words(*text)), "")
          << c.schema << ": " << text->words();
      EXPECT_FALSE(testing::compares_itself(*text)) << c.schema << ": " << text->words();
    }
  }
  EXPECT_GT(said, 200u);
}

}  // namespace
}  // namespace tracestep::pages
