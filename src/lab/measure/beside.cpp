#include "lab/measure/beside.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/measure/comparison.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr double kMargin = 0.02;

struct Beside {
  const BesideCell &first, &cell;
  std::size_t rounds;
  Comparison comparison;

  bool is_enough() const { return can_tell_pairs(rounds); }
  std::string_view words() const {
    return is_enough() ? fine_words_of(comparison) : "too few rounds";
  }
};

// Returns the members of the cell's key that differ from the other's: "executor compiled copy 2".
std::string difference(const BesideCell& cell, const BesideCell& other) {
  std::vector<std::string> out;
  for (const auto& [name, value] : cell.key.members()) {
    const Json* there = other.key.find(name);
    if (there != nullptr && *there == value) continue;
    const std::string text = value.is_string() ? value.as_string() : value.dump();
    out.push_back(fmt::format("{} {}", name, text));
  }
  return fmt::format("{}", fmt::join(out, " "));
}

std::vector<Beside> beside(std::span<const BesideCell> cells) {
  std::vector<Beside> out;
  const auto visits = [](const BesideCell& c) { return by_process(c.ms, c.visits); };
  for (std::size_t i = 1; i < cells.size(); ++i) {
    const ProcessSamples a = visits(cells[0]), b = visits(cells[i]);
    // A cell that failed in between has fewer.
    if (a.size() != b.size() || a.size() < 2) continue;
    const bool is_enough = can_tell_pairs(a.size());
    out.push_back({cells[0], cells[i], a.size(),
                   is_enough ? compare_pairs(a, b, kMargin) : compare_visits(a, b)});
  }
  return out;
}

}  // namespace

Table beside_table(std::span<const BesideCell> cells) {
  using B = const Beside&;
  const auto ratio = [](const char* name, const char* title, const char* doc) {
    return timed(real_column(name, title, "", 3, doc));
  };
  const Fields<Beside> fields = {
      {as_key(col::label.titled("cell")), [](B b) { return b.cell.label; }},
      {as_key(text_column("beside", "", "the first cell")), [](B b) { return b.first.label; }},
      {data_only(col::change("what tells the cell from the first")),
       [](B b) { return difference(b.cell, b.first); }},
      {data_only(text_column("against", "", "what tells the first from the cell")),
       [](B b) { return difference(b.first, b.cell); }},
      {int_column("rounds"), [](B b) { return static_cast<std::int64_t>(b.rounds); }},
      {ratio("ratio", "time over the first's", "the median of the rounds' ratios"),
       [](B b) { return b.comparison.ratio; }},
      {ratio("low", "from", "99.5 % interval; with fewer than nine rounds their range"),
       [](B b) { return finite_or_null(b.comparison.low); }},
      {ratio("high", "to", ""), [](B b) { return finite_or_null(b.comparison.high); }},
      {ratio("p", "p", "Wilcoxon of the rounds' ratios, two-sided"),
       [](B b) { return finite_or_null(b.comparison.p); }},
      {as_comparison(
           col::is("faster or slower than the first at 99.5 %, slightly where that is within "
                   "2 %, same within 2 %, unclear, or too few rounds (fewer than nine)")),
       [](B b) { return b.words(); }}};
  return table_of("beside", "Each cell beside the first", fields, beside(cells));
}

}  // namespace tracestep
