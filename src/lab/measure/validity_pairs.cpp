// The checks that compare rows: a part with its whole, more work in less time, one cell measured
// twice, and a speed that collapses with size.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "base/units.h"
#include "lab/measure/processes.h"
#include "lab/measure/validity.h"
#include "lab/measure/validity_parts.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// The least ratio of two rows' times that means anything: rows are measured at different moments,
// and the interval of one does not include what changes between them.
constexpr double kBetweenRows = 1.05;

// The values by which rows are compared, read once from each row. NaN: missing.
struct Facts {
  explicit Facts(const ResultRow& of) : row(&of) {
    constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
    flops = of.flops().value_or(kMissing);
    median = of.median_ms().value_or(kMissing);
    launches = of.launches().value_or(kMissing);
    const TimedSamples timed(of.samples_ms(), counts_in(of));
    // For a row without its own interval: that of its samples, or of the medians of its processes
    // or visits; with fewer than six values, which have no 95 % interval, their range.
    const Interval own = timed.ms.empty() ? Interval{kMissing, kMissing, 0} : timed.interval;
    low = of.number("interval_low_ms").value_or(own.low);
    high = of.number("interval_high_ms").value_or(own.high);
    has_interval = of.number("interval_low_ms").has_value() || timed.has_interval();
  }

  // True if this row's time lies below the other's beyond the noise of both.
  bool is_below(const Facts& other) const {
    return high < other.low && kBetweenRows * median < other.median;
  }
  // Names the row with its time: "small context 128 step fp32 fused (62.9 ms)".
  std::string said() const {
    return fmt::format("{} ({})", row->label(), format_duration_ms(median));
  }
  // Says the time with its table: "12.3 ms in the table scaling".
  std::string said_with_place() const {
    const std::string table = row->table();
    return format_duration_ms(median) + (table.empty() ? "" : " in the table " + table);
  }

  const ResultRow* row;
  double flops, launches, median, low, high;
  bool has_interval;  // a 95 % one from low to high; else these are the samples' ends
};

// Returns how severe it is that two times contradict: only a doubt if other programs ran or samples
// are too few for an interval, as both times may be off by more than they show.
Severity severity_of(const Facts& a, const Facts& b) {
  const auto may_be_noise = [](const Facts& f) { return had_company(*f.row) || !f.has_interval; };
  return may_be_noise(a) || may_be_noise(b) ? Severity::kDoubt : Severity::kInvalid;
}

std::string_view what_is_exceeded(const Facts& a, const Facts& b) {
  return a.has_interval && b.has_interval ? "beyond the noise of either"
                                          : "farther apart than the samples of either";
}

using Found = std::optional<Verdict>;

// --- a part and its whole -----------------------------------------------------------------------

// True if a step of mode `part` does nothing that one of mode `whole` does not do as well.
bool is_part_of(std::string_view part, std::string_view whole) {
  constexpr std::array<std::string_view, 4> kGrowing = {"inference", "forward", "forward-backward",
                                                        "step"};
  const auto a = std::ranges::find(kGrowing, part), b = std::ranges::find(kGrowing, whole);
  if (a != kGrowing.end() && b != kGrowing.end()) return a < b;
  return whole == "whole" && (part == "forward" || part == "backward");  // of attention alone
}

// True if both rows are of one table, so that they were measured one after the other.
bool is_of_one_table(const Facts& row, const Facts& other) {
  return row.row->table() == other.row->table();
}

// Returns "the whole of" or "a part of" `row` for `other` if the part takes longer; else empty.
std::string_view part_above_whole(const Facts& row, const Facts& other) {
  const std::string mode = row.row->mode(), beside = other.row->mode();
  const bool is_part = is_part_of(mode, beside);
  if (!is_part && !is_part_of(beside, mode)) return {};
  const Facts &part = is_part ? row : other, &whole = is_part ? other : row;
  // Some passes join what only a whole step has: then the smaller mode runs kernels of its own.
  if (part.launches > whole.launches || !whole.is_below(part)) return {};
  return is_part ? "the whole of" : "a part of";
}

// Reports a part that takes longer than its whole, in both rows: nothing shows which is wrong.
Found part_over_whole(const Facts& row, const Facts& other) {
  if (!is_of_one_table(row, other)) return {};  // measured_apart()
  const std::string_view relation = part_above_whole(row, other);
  if (relation.empty()) return {};
  return Verdict{"part_over_whole", severity_of(row, other),
                 fmt::format("it takes {}, and {} is {} it: a part cannot take longer than the "
                             "whole, so one of the two times is wrong",
                             format_duration_ms(row.median), other.said(), relation)};
}

// Reports fused kernels slower than their parts, whose work they do with fewer launches and bytes.
Found fused_over_primitive(const Facts& row, const Facts& other) {
  const std::string ops = row.row->ops(), beside = other.row->ops();
  const bool is_fused = ops == "fused" && beside == "primitive";
  if (!is_fused && !(ops == "primitive" && beside == "fused")) return {};
  if (!is_of_one_table(row, other)) return {};  // the machine may have changed in between
  const Facts &fused = is_fused ? row : other, &primitive = is_fused ? other : row;
  if (!primitive.is_below(fused)) return {};
  return Verdict{"fused_over_primitive", severity_of(row, other),
                 fmt::format("fused takes {:.2f} times as long as primitive ops: {} against {}; it "
                             "does the same with fewer launches and bytes, so one of the two times "
                             "is wrong",
                             fused.median / primitive.median, fused.said(), primitive.said())};
}

// --- more work ----------------------------------------------------------------------------------

// Reports a row with far more FLOPs than `other`, of the same model, that still takes less time.
Found more_work_in_less_time(const Facts& row, const Facts& other) {
  constexpr double kMoreWork = 1.5;
  if (!is_of_one_table(row, other)) return {};  // likewise
  if (!(row.flops >= kMoreWork * other.flops) || !row.is_below(other)) return {};
  return Verdict{"more_work_in_less_time", severity_of(row, other),
                 fmt::format("{:.1f} times the FLOPs of {} in {:.2f} of its time: labels are "
                             "swapped, or a wait is missing",
                             row.flops / other.flops, other.said(), row.median / other.median)};
}

// Reports a row ten times slower per FLOP than one of no more FLOPs: its memory may be elsewhere.
Found collapsed_speed(const Facts& row, const Facts& other) {
  constexpr double kCollapse = 10.0;
  if (!(row.flops >= other.flops) || other.flops <= 0) return {};
  const double ratio = row.median / row.flops * (other.flops / other.median);
  if (!(ratio > kCollapse)) return {};
  return Verdict{
      "collapsed_speed", Severity::kDoubt,
      fmt::format(
          "{:.0f} times the time per FLOP of {}, which has no more FLOPs: memory of the host "
          "in use, or the device was held back; not a time of this device",
          ratio, other.row->label())};
}

// --- one cell, or a part and its whole, whose times in two tables contradict ---------------------

Found measured_apart(const Facts& row, const Facts& other) {
  if (row.row->mode() != other.row->mode()) {
    const std::string_view relation = part_above_whole(row, other);
    if (relation.empty() || is_of_one_table(row, other)) return {};
    return Verdict{std::string(kMeasuredApart), Severity::kDoubt,
                   fmt::format("it took {}, and {} it, {}, {}: {}, so the machine was not the same",
                               row.said_with_place(), relation, other.row->label(),
                               other.said_with_place(), what_is_exceeded(row, other))};
  }
  if (!row.is_below(other) && !other.is_below(row)) return {};
  return Verdict{
      std::string(kMeasuredApart), Severity::kDoubt,
      fmt::format("the same cell took {}, and {}: {}, so the machine was not the same",
                  row.said_with_place(), other.said_with_place(), what_is_exceeded(row, other))};
}

// --- which rows are compared --------------------------------------------------------------------

bool is_mode(const RunField& field) {
  return field.name == "mode";
}

// A check of two rows that differ at most in the fields for which `except` holds.
struct PairCheck {
  std::string_view code, doc;
  Found (*check)(const Facts& row, const Facts& other);
  bool (*except)(const RunField& field);
};
constexpr PairCheck kPairChecks[] = {
    {"part_over_whole", "a part takes longer than its whole", part_over_whole, is_mode},
    {"fused_over_primitive", "fused takes longer than primitive ops", fused_over_primitive,
     [](const RunField& f) { return f.name == "ops"; }},
    {"more_work_in_less_time", "far more FLOPs take less time", more_work_in_less_time, is_shape},
    {"collapsed_speed", "ten times the time per FLOP of a smaller row", collapsed_speed,
     [](const RunField& f) { return f.group == FieldGroup::kModel || is_shape(f) || is_mode(f); }},
    {kMeasuredApart, "one cell took different times at different moments", measured_apart,
     is_mode}};

// Groups the rows that ran, by index: those of a group differ only in fields that `except` allows.
std::vector<std::vector<std::size_t>> alike(std::span<const ResultRow> rows,
                                            bool (*except)(const RunField&)) {
  std::map<std::string, std::vector<std::size_t>> lists;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].status() != "ok") continue;
    std::string key = rows[i].text("kind") + '\n';
    for (const RunField& field : run_fields()) {
      if (field.show == FieldShow::kNowhere || except(field)) continue;
      const Json* value = rows[i].parameter(field.name);
      key += (value == nullptr ? std::string() : value->dump()) + '\n';
    }
    lists[key].push_back(i);
  }
  std::vector<std::vector<std::size_t>> out;
  for (auto& [key, list] : lists) out.push_back(std::move(list));
  return out;
}

}  // namespace

std::size_t pair_check_count() {
  return std::size(kPairChecks);
}

std::string_view doc_of(std::string_view code) {
  const auto row = std::ranges::find(row_checks(), code, &RowCheck::code);
  if (row != row_checks().end()) return row->doc;
  const auto pair = std::ranges::find(kPairChecks, code, &PairCheck::code);
  return pair == std::end(kPairChecks) ? std::string_view() : pair->doc;
}

std::vector<std::string> words_of_codes(std::span<const std::string> codes) {
  std::vector<std::string> out;
  for (const std::string& code : codes) {
    const std::string_view doc = doc_of(code);
    out.emplace_back(doc.empty() ? code : doc);
  }
  return out;
}

std::vector<RowVerdict> judge_together(std::span<const ResultRow> rows) {
  const std::vector<Facts> facts(rows.begin(), rows.end());
  std::vector<RowVerdict> out;
  for (const PairCheck& check : kPairChecks) {
    for (const std::vector<std::size_t>& list : alike(rows, check.except)) {
      for (std::size_t i : list) {
        if (!rows[i].tflops()) continue;
        // The first partner that shows the fault is enough: a row gets one verdict.
        for (std::size_t j : list) {
          if (i == j || !rows[j].number("tflops")) continue;
          Found verdict = check.check(facts[i], facts[j]);
          if (!verdict) continue;
          out.push_back({i, std::move(*verdict)});
          break;
        }
      }
    }
  }
  std::ranges::stable_sort(out, {}, &RowVerdict::row);
  return out;
}

}  // namespace tracestep
