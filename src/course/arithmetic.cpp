// Recomputes the numbers that published studies derived from their own tables.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "course/published.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

// Names a published time of a study by its table, pass and precision.
struct TimeOf {
  std::string_view table, pass, precision;
};

double time_of(const Published& published, const PublishedArithmetic& a, const TimeOf& of) {
  for (const PublishedTime& t : published.times) {
    if (t.study == a.study && t.table == of.table && t.pass == of.pass && t.size == a.size &&
        t.context == a.context && t.precision == of.precision && !t.is_oom) {
      return t.ms;
    }
  }
  return NAN;
}

// A value computed from figures that were rounded for print, and the bounds that rounding leaves.
struct Computed {
  double value = NAN, low = NAN, high = NAN;
};

// The ratio and its bounds, if both figures may be off by `half`, half of the last printed digit.
Computed ratio(double a, double b, double half) {
  return {a / b, (a - half) / (b + half), (a + half) / (b - half)};
}
Computed sum(double a, double b, double half) {
  return {a + b, a + b - 2 * half, a + b + 2 * half};
}
Computed scaled(const Computed& c, double factor) {
  return {factor * c.value, factor * c.low, factor * c.high};
}

constexpr double kHalfOfTenth = 0.05, kHalfOfHundredth = 0.005;

Computed speedup(const Published& published, const PublishedArithmetic& a) {
  if (a.pass != "scores") {
    return ratio(time_of(published, a, {"fp32 beside bf16", a.pass, "fp32"}),
                 time_of(published, a, {"bf16 beside fp32", a.pass, "bf16"}), kHalfOfHundredth);
  }
  const auto scores_in = [&](std::string_view precision) {
    for (const PublishedParts& p : published.parts) {
      if (p.study == a.study && p.table == "scores" && p.size == a.size &&
          p.precision == precision) {
        return p.scores_ms;
      }
    }
    return double{NAN};
  };
  return ratio(scores_in("fp32"), scores_in("bf16"), kHalfOfHundredth);
}

double peak_of(const Published& published, const PublishedArithmetic& a,
               std::string_view precision) {
  for (const PublishedPeak& p : published.peaks) {
    if (p.study == a.study && p.table == "peaks" && p.pass == a.pass && p.size == a.size &&
        p.context == a.context && p.precision == precision) {
      return p.gigabytes;
    }
  }
  return NAN;
}

// The figure by the study's own numbers, with bounds; NAN where they do not suffice for it.
Computed computed(const Published& published, const PublishedArithmetic& a) {
  const auto range = [&](std::string_view pass) {
    return time_of(published, a, {"host ranges", pass, "fp32"});
  };
  if (a.quantity == "speedup") return speedup(published, a);
  if (a.quantity == "step total") return sum(range("forward"), range("backward"), kHalfOfTenth);
  if (a.quantity == "backward over forward") {
    return ratio(range("backward"), range("forward"), kHalfOfTenth);
  }
  const double fp32 = peak_of(published, a, "fp32"), bf16 = peak_of(published, a, "bf16");
  const Computed difference = sum(bf16, -fp32, kHalfOfHundredth);
  if (a.quantity == "difference in GB") return difference;
  if (a.quantity == "difference in percent") return scaled(difference, 100 / fp32);
  return {};
}

ReplayVerdict judge(const PublishedArithmetic& a, const Computed& c) {
  if (!std::isfinite(c.value)) {
    return {Agreement::kNotCompared, "not_compared", "the study does not give what it is made of"};
  }
  const double half = 0.501 * std::pow(10.0, -a.digits);
  if (std::abs(c.value - a.printed) <= half) {
    return {Agreement::kAgree, "rounded", "to its last digit"};
  }
  if (a.printed >= c.low - half && a.printed <= c.high + half) {
    return {Agreement::kAgree, "rounded_before", "as far as its parts, which are rounded, tell"};
  }
  return {Agreement::kSuspicious, "arithmetic",
          fmt::format("its own tables give {:.4g}, at most {:.4g}", c.value, c.high)};
}

struct Row {
  PublishedArithmetic a;
  double value = NAN;
  ReplayVerdict verdict;
};

// Checks the bytes over S² that a study prints against its own MiB and S.
Row per_square(const PublishedAttention& a) {
  constexpr double kMega = 1e6, kMi = 1024.0 * 1024.0;
  const double squares = static_cast<double>(a.context) * static_cast<double>(a.context);
  const auto with = [&](double unit) {
    return scaled(sum(a.before_backward_mib, 0, kHalfOfHundredth / 2), unit / squares);
  };
  Row out{{a.study, fmt::format("bytes over S², width {}", a.width), "attention", "", a.context,
           a.per_square, 6},
          with(kMi).value,
          {}};
  if (judge(out.a, with(kMega)).agreement == Agreement::kAgree) {
    out.verdict = {Agreement::kExplainable, "unit", "MiB were taken for 10^6 bytes"};
  } else {
    out.verdict = judge(out.a, with(kMi));
  }
  return out;
}

}  // namespace

Table arithmetic_replay_table(const Published& published) {
  using R = const Row&;
  const Fields<Row> fields = {
      {col::study, [](R r) { return r.a.study; }},
      {col::quantity, [](R r) { return r.a.quantity; }},
      {col::size, [](R r) { return or_null(r.a.size); }},
      {col::context, [](R r) { return r.a.context; }},
      {col::pass, [](R r) { return r.a.pass; }},
      {real_column("printed", "printed", "", 3), [](R r) { return r.a.printed; }},
      {real_column("computed", "from its tables", "", 3),
       [](R r) { return finite_or_null(r.value); }},
      {col::verdict, [](R r) { return name_of(r.verdict.agreement); }},
      {col::code, [](R r) { return r.verdict.code; }},
      {col::reason, [](R r) { return r.verdict.text; }}};
  std::vector<Row> rows;
  for (const PublishedArithmetic& a : published.arithmetic) {
    const Computed c = computed(published, a);
    rows.push_back({a, c.value, judge(a, c)});
  }
  for (const PublishedAttention& a : published.attention) {
    if (std::isfinite(a.per_square)) rows.push_back(per_square(a));
  }
  return table_of("published_arithmetic", "What write-ups computed from their own tables", fields,
                  rows);
}

}  // namespace tracestep
