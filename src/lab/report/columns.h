// Short ways to write the columns and the cells of a table.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lab/report/table.h"

namespace tracestep {

inline Column text_column(std::string name, std::string title = {}, std::string description = {}) {
  return {
      .name = std::move(name), .title = std::move(title), .description = std::move(description)};
}

inline Column int_column(std::string name, std::string title = {}, std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .kind = ColumnKind::kInt,
          .description = std::move(description)};
}

inline Column bytes_column(std::string name, std::string title = {}, std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .kind = ColumnKind::kBytes,
          .description = std::move(description)};
}

inline Column real_column(std::string name, std::string title, std::string unit, int digits,
                          std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .unit = std::move(unit),
          .kind = ColumnKind::kReal,
          .digits = digits,
          .description = std::move(description)};
}

inline Column bool_column(std::string name, std::string title = {}, std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .kind = ColumnKind::kBool,
          .description = std::move(description)};
}

inline Column reals_column(std::string name, std::string description = {}) {
  return {
      .name = std::move(name), .kind = ColumnKind::kReals, .description = std::move(description)};
}

inline Column structured_column(std::string name, std::string description = {}) {
  return {.name = std::move(name),
          .kind = ColumnKind::kStructured,
          .description = std::move(description)};
}

// A column that several tables have: its name and kind, and for numbers the unit, are said in one
// place (lab/report/known_columns.h), as are its usual title, description and decimals.
template <ColumnKind kKind>
struct KnownColumn {
  const char *name, *title = "", *description = "", *unit = "";
  int digits = -1;
  ColumnRole role = ColumnRole::kShown;

  operator Column() const { return (*this)(description); }
  // Returns the column with this description instead of its own.
  Column operator()(std::string about) const { return titled(title, std::move(about)); }
  // Returns the column with this title instead of its own, and with its own description or `about`.
  Column titled(std::string words) const { return titled(std::move(words), description); }
  Column titled(std::string words, std::string about) const {
    return {.name = name,
            .title = std::move(words),
            .unit = unit,
            .kind = kKind,
            .digits = digits,
            .description = std::move(about),
            .role = role};
  }
};

inline Column with_digits(int digits, Column column) {
  column.digits = digits;
  return column;
}

inline Column data_only(Column column) {
  column.data_only = true;
  return column;
}

// Marks texts that people copy (flags, commands, formulas): they are never cut.
inline Column to_copy(Column column) {
  column.is_whole = true;
  return column;
}

// Sets the words for the status of a step that was only predicted: people read "does not fit" where
// a run would say "oom".
inline Column without_run(Column status) {
  status.words = {{"ok", "fits"}, {"oom", "does not fit"}};
  return status;
}

// --- roles; see ColumnRole
// Returns the column with this role.
template <ColumnRole role>
Column with_role(Column column) {
  column.role = role;
  return column;
}
inline constexpr auto *as_key = with_role<ColumnRole::kKey>,
                      *as_samples = with_role<ColumnRole::kSamples>,
                      *as_exact = with_role<ColumnRole::kExact>,
                      *as_following = with_role<ColumnRole::kFollows>;

inline Column as_part(std::string whole, Column column) {
  column.whole = std::move(whole);
  return with_role<ColumnRole::kPart>(std::move(column));
}

// Marks a column of ratios, shares or verdicts as computed from measured times.
inline Column timed(Column column, Timing timing = Timing::kSampled) {
  column.timing = timing;
  return column;
}

// Marks a column as a comparison of the times of two rows. A note below the table names rows that
// have too few samples for it.
inline Column as_comparison(Column column) {
  column.words = {{"too few samples", "too few"}, {"too few rounds", "too few"}};
  return timed(std::move(column));
}

// --- cells; null is an empty cell ---------------------------------------------------------------
// Returns the value, or an empty cell unless the condition holds.
inline Json when(bool condition, Json value) {
  if (!condition) value = Json();
  return value;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
inline Json or_null(const std::string& text) {
  return when(!text.empty(), text);
}
inline Json finite_or_null(double value) {
  return when(std::isfinite(value), value);
}
inline Json positive_or_null(double value) {
  return when(value > 0, value);
}

inline Json list_of(std::span<const double> values) {
  Json out = Json::array();
  for (double v : values) out.push_back(v);
  return out;
}

// Returns `part` in percent of `whole`; 0 when `whole` is 0.
inline double percent_of(double part, double whole) {
  return whole > 0 ? 100.0 * part / whole : 0.0;
}
inline double percent_of(std::int64_t part, std::int64_t whole) {
  return percent_of(static_cast<double>(part), static_cast<double>(whole));
}

}  // namespace tracestep
