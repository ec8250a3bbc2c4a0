#include "lab/compile/against.h"

#include "lab/measure/statistics.h"

namespace tracestep {

std::optional<Against> Against::of(const std::optional<TimedSamples>& base,
                                   const TimedSamples& samples) {
  constexpr double kMargin = 0.02;
  if (!base || base->ms.empty() || samples.ms.empty()) return std::nullopt;
  return Against{compare_cells(*base, samples, kMargin)};
}

Fields<Against> against_fields(const std::string& prefix, const std::string& title,
                               const std::string& what) {
  using A = const Against&;
  const auto ratio = [&](const char* name, std::string text, std::string doc) {
    return timed(real_column(prefix + name, std::move(text), "x", 3, std::move(doc)));
  };
  return {{ratio("_speedup", title, "median of " + what + " over this one"), &Against::speedup},
          {data_only(ratio("_low", "from", "95 % interval of that ratio")),
           [](A a) { return finite_or_null(1.0 / a.comparison.high); }},
          {data_only(ratio("_high", "to", "")),
           [](A a) { return finite_or_null(1.0 / a.comparison.low); }},
          {as_comparison(text_column(
               prefix + "_verdict", "is",
               "faster or slower beyond chance, slightly where that is within 2 % (5 % of cells "
               "measured in rounds), same within it, unclear, or too few samples to say")),
           [](A a) { return fine_words_of(a.comparison); }}};
}

Fields<TimedSamples> time_fields(const std::string& prefix, const std::string& title) {
  using S = const TimedSamples&;
  const auto ms = [&](const char* name, std::string text, const char* doc) {
    return real_column(prefix + name, std::move(text), "ms", 3, doc);
  };
  const auto end = [](S s, double Interval::*member) {
    return when(s.has_interval(), s.interval.*member);
  };
  return {{as_samples(reals_column(prefix + "samples_ms", "wall time of each timed step")),
           [](S s) { return list_of(s.ms); }},
          {visits_field(prefix + "samples_ms"), visit_counts},
          {ms("median_ms", title, "of the samples"),
           [](S s) { return finite_or_null(s.summary.median); }},
          {ms("interval_low_ms", "95 % from",
              "95 % interval of the median; six samples, or visits of rounds, at least"),
           [end](S s) { return end(s, &Interval::low); }},
          {ms("interval_high_ms", "to", ""), [end](S s) { return end(s, &Interval::high); }}};
}

}  // namespace tracestep
