#include "lab/read/trace_difference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/measure/bootstrap.h"
#include "lab/measure/statistics.h"
#include "lab/read/file_kind.h"
#include "lab/read/snapshot_file.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr double kSmallestShare = 0.002;   // of a step: what is less in both is no row
constexpr double kSmallestChange = 0.002;  // of a step: what differs by less is the same
constexpr std::size_t kLeastSteps = 6;

struct ChangeRow {
  std::string level, name;
  std::vector<double> a, b;  // of each step, ms
  std::string renamed = {};  // its name in B, where that is another one
  double p = 1, low = 0, high = 0;
  std::string verdict = {};

  double ratio() const { return median_of(b) / median_of(a); }
  double change_ms() const { return mean_of(b) - mean_of(a); }
};

constexpr const char* kWhole = "whole module";

using Lists = std::map<std::string, std::vector<double>>;

constexpr std::pair<PartLevel, const char*> kLevels[] = {{PartLevel::kKind, "kind"},
                                                         {PartLevel::kPass, "pass"},
                                                         {PartLevel::kModule, "module"},
                                                         {PartLevel::kKernel, "kernel"}};

// Returns the ms of each step, by name of the level's parts; a module's without modules within it.
Lists lists_of(const ReadTrace& t, PartLevel level) {
  Lists out;
  for (const Part* part : t.times.parts.of(level)) {
    const std::string name = t.name_of(*part);
    if (name.empty() || part->times.count() == 0) continue;
    std::vector<double>& ms = out[name];
    ms.resize(t.times.count());
    part->times.add_to(ms);
  }
  if (level == PartLevel::kKind) out["gaps"] = t.times.ms_of(PartLevel::kGap);
  return out;
}

// Returns the times of modules that contain others, with those of all modules in them: a change
// that is spread over the inner ones may be too small in each.
Lists whole_modules(const Lists& modules) {
  Lists out;
  for (const auto& [path, ms] : modules) {
    for (std::size_t end = path.find('/'); end != std::string::npos;
         end = path.find('/', end + 1)) {
      std::vector<double>& sum = out[path.substr(0, end)];
      sum.resize(ms.size());
      std::ranges::transform(sum, ms, sum.begin(), std::plus());
    }
  }
  for (auto& [path, sum] : out) {
    if (const auto own = modules.find(path); own != modules.end()) {
      std::ranges::transform(sum, own->second, sum.begin(), std::plus());
    }
  }
  return out;
}

// Returns, for the names of kernels of A that B lacks, their names in B. Kernels are matched by op,
// module and number of calls.
std::map<std::string, std::string> renamed_kernels(const ReadTrace& a, const ReadTrace& b,
                                                   const Lists& in_a, const Lists& in_b) {
  using Place = std::tuple<WorkClass, std::string, std::string, std::int64_t>;
  const auto places = [](const ReadTrace& t, const Lists& others) {
    std::map<Place, std::vector<std::string>> out;
    for (const Part* k : t.times.parts.of(PartLevel::kKernel)) {
      const std::string& name = t.facts.names[k->number];
      if (others.contains(name) || k->place.op == kNoNumber) continue;
      const auto calls = k->times.count() / static_cast<std::int64_t>(t.times.count());
      out[{k->work, t.facts.names[k->place.op], t.times.paths[k->place.module], calls}].push_back(
          name);
    }
    return out;
  };
  std::map<std::string, std::string> out;
  const auto of_b = places(b, in_a);
  for (const auto& [place, names] : places(a, in_b)) {
    const auto found = of_b.find(place);
    if (found != of_b.end() && names.size() == 1 && found->second.size() == 1) {
      out[names.front()] = found->second.front();
    }
  }
  return out;
}

// How much the medians of a recording's two halves differ, as a share of the first.
double drift_of(const std::vector<double>& ms) {
  const auto half = static_cast<std::ptrdiff_t>(ms.size() / 2);
  const double first = median_of({ms.begin(), ms.begin() + half});
  const double second = median_of({ms.begin() + half, ms.end()});
  return first > 0 ? std::abs(second / first - 1) : 0.0;
}

class Difference {
 public:
  Difference(const ReadTrace& a, const ReadTrace& b, const DifferenceOptions& options)
      : a_(a), b_(b), options_(options) {}

  std::vector<ChangeRow> rows() {
    rows_.push_back({"step", "", a_.times.step_ms, b_.times.step_ms});
    for (const auto& [level, word] : kLevels) {
      Lists in_a = lists_of(a_, level), in_b = lists_of(b_, level);
      if (level == PartLevel::kKernel) {
        for (const auto& [from, to] : renamed_kernels(a_, b_, in_a, in_b)) {
          rows_.push_back({word, from, in_a[from], in_b[to], to});
          in_a.erase(from);
          in_b.erase(to);
        }
      }
      if (level == PartLevel::kModule) add(kWhole, whole_modules(in_a), whole_modules(in_b));
      add(word, std::move(in_a), std::move(in_b));
    }
    const double least =
        kSmallestShare * std::max(a_.times.mean_step_ms(), b_.times.mean_step_ms());
    std::erase_if(rows_, [&](const ChangeRow& row) {
      return mean_of(row.a) < least && mean_of(row.b) < least;
    });
    judge();
    std::ranges::stable_sort(rows_.begin() + 1, rows_.end(), [](const auto& x, const auto& y) {
      return std::abs(x.change_ms()) > std::abs(y.change_ms());
    });
    return std::move(rows_);
  }

 private:
  void add(const char* level, Lists in_a, Lists in_b) {
    for (auto& [name, ms] : in_b) in_a.try_emplace(name, a_.times.count(), 0.0);
    for (auto& [name, ms] : in_a) {
      std::vector<double>& of_b = in_b[name];
      of_b.resize(b_.times.count());
      rows_.push_back({level, name, std::move(ms), std::move(of_b)});
    }
  }

  void judge() {
    const bool enough = std::min(a_.times.count(), b_.times.count()) >= kLeastSteps;
    for (ChangeRow& row : rows_) row.p = mann_whitney_p(row.a, row.b);
    std::vector<ChangeRow*> by_p;
    for (ChangeRow& row : rows_) by_p.push_back(&row);
    std::ranges::stable_sort(by_p, {}, &ChangeRow::p);
    bool holds = enough;
    const auto count = static_cast<double>(by_p.size());
    for (std::size_t i = 0; i < by_p.size(); ++i) {
      ChangeRow& row = *by_p[i];
      const double level = options_.chance / (count - static_cast<double>(i));
      holds = holds && row.p < level;
      const Interval interval = ratio_interval(row.a, row.b, 0.99);
      row.low = interval.low;
      row.high = interval.high;
      row.verdict = verdict_of(row, holds, enough);
    }
  }

  std::string verdict_of(const ChangeRow& row, bool is_apart, bool enough) const {
    if (mean_of(row.a) == 0) return "only in B";
    if (mean_of(row.b) == 0) return "only in A";
    if (!enough) return "too few steps";
    const double ratio = row.ratio();
    const double step_ms = median_of(a_.times.step_ms);
    const bool is_small = std::abs(row.change_ms()) < kSmallestChange * step_ms;
    const double margin = std::max({options_.margin, drift_of(row.a), drift_of(row.b)});
    if (is_apart && !is_small && ratio > 1 + margin) return "slower";
    if (is_apart && !is_small && ratio < 1 - margin) return "faster";
    const bool is_within = row.low > 1 - options_.margin && row.high < 1 + options_.margin;
    return is_within || is_small ? "same" : "unclear";
  }

  const ReadTrace &a_, &b_;
  const DifferenceOptions& options_;
  std::vector<ChangeRow> rows_;
};

}  // namespace

Table difference_table(const ReadTrace& a, const ReadTrace& b, const DifferenceOptions& options) {
  const Fields<ChangeRow> fields{
      {as_key(col::level("what the row is of")), &ChangeRow::level},
      {as_key(col::name), [](const ChangeRow& r) { return or_null(r.name); }},
      {as_key(data_only(text_column("name_in_b", "in B", "where B has another name for it"))),
       [](const ChangeRow& r) { return or_null(r.renamed); }},
      {real_column("a_ms", "A", "ms", -1, "mean of its steps"),
       [](const ChangeRow& r) { return Json(mean_of(r.a)); }},
      {real_column("b_ms", "B", "ms", -1), [](const ChangeRow& r) { return Json(mean_of(r.b)); }},
      {real_column("change_ms", "change", "ms", -1, "B less A"),
       [](const ChangeRow& r) { return Json(r.change_ms()); }},
      {timed(col::ratio("of the medians")),
       [](const ChangeRow& r) { return finite_or_null(r.ratio()); }},
      {timed(col::ratio_low("of its interval of 99 %")),
       [](const ChangeRow& r) { return finite_or_null(r.low); }},
      {timed(col::ratio_high), [](const ChangeRow& r) { return finite_or_null(r.high); }},
      {data_only(with_digits(-1, col::p.titled("", "of the test, before Holm's correction"))),
       &ChangeRow::p},
      {timed(col::verdict), &ChangeRow::verdict}};
  Table out = table_of("changes", "What differs", fields, Difference(a, b, options).rows());
  if (std::min(a.times.count(), b.times.count()) < kLeastSteps) {
    out.notes.push_back(
        fmt::format("{} and {} steps: {} in each are the least that tell chance from change",
                    a.times.count(), b.times.count(), kLeastSteps));
  }
  return out;
}

Table recorded_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                          const DifferenceOptions& options, const ReadTrace* eager) {
  const RecordedKind kind = recorded_kind(a);
  if (recorded_kind(b) != kind) {
    throw Error(ErrorCode::kInput, "B", "A and B are recordings of two kinds",
                "two traces or two snapshots are compared");
  }
  if (kind == RecordedKind::kSnapshot) {
    return snapshot_difference(read_snapshot_facts(a), read_snapshot_facts(b));
  }
  return difference_table(read_trace_of_file(a, eager), read_trace_of_file(b, eager), options);
}

}  // namespace tracestep
