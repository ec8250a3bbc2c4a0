#include "lab/measure/judged.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace tracestep {

using Row = Evidence::Row;

Quantity count_where(const std::vector<Row>& rows, std::initializer_list<std::string_view> starts) {
  std::set<std::string> verdicts;
  for (const Row& row : rows) verdicts.insert(row.text("verdict"));
  Quantity out = Quantity::constant(0);
  for (const std::string& verdict : verdicts) {
    const bool fits = std::ranges::any_of(
        starts, [&](std::string_view start) { return verdict.starts_with(start); });
    if (fits) out = out + count_of(rows, "verdict", verdict);
  }
  return out;
}

Text beside_validity(const Evidence& e) {
  Text out;
  for (const auto& [table, words] :
       {std::pair{"attention",
                  " Beside these, of {} rows of attention alone {} are doubtful and "
                  "{} invalid."},
        {"attention_ways",
         " Of {} rows of attention eager and compiled {} are doubtful and {} invalid."}}) {
    if (!e.find(table, {{"status", "ok"}})) continue;
    std::vector<Row> rows = e.rows(table, {{"status", "ok"}});
    std::erase_if(rows, [](const Row& row) { return !row.has("verdict"); });
    if (rows.empty()) continue;
    out += say(words, {whole(count_of(rows, "verdict")), whole(count_where(rows, {"doubt"})),
                       whole(count_where(rows, {"invalid"}))});
  }
  if (!e.find("warmup", {})) return out;
  return out +
         say(" {} rows of starts are not judged.", {whole(count_of(e.rows("warmup"), "start_ms"))});
}

}  // namespace tracestep
