// Verdicts on published attention benchmarks.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "course/ours.h"
#include "course/published.h"
#include "lab/measure/statistics.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::int64_t kAttentionBatch = 8;
constexpr double kFloat = 4, kMebibyte = 1024.0 * 1024.0, kSlack = 1.5;

double square_bytes(std::int64_t context) {
  const auto s = static_cast<double>(context);
  return kAttentionBatch * s * s * kFloat;
}

// Bytes of one tensor of B·T·D, such as q.
double vector_bytes(const PublishedAttention& a) {
  return kAttentionBatch * static_cast<double>(a.context) * static_cast<double>(a.width) * kFloat;
}

// Describes the memory held between forward and backward: so many tensors of B·T² (N² in the
// studies) and of B·T·D, perhaps a mask of T² bytes, and fixed bytes.
struct Held {
  int squares = 0, vectors = 0;
  bool has_mask = false;
  double fixed_bytes = 0;

  double rest(const PublishedAttention& a) const {
    const auto s = static_cast<double>(a.context);
    return a.before_backward_mib * kMebibyte - squares * square_bytes(a.context) -
           vectors * vector_bytes(a) - (has_mask ? s * s : 0.0);
  }
  std::string words() const {
    return fmt::format("{} tensors of B·T², {} of B·T·D{} and {:.0f} MiB", squares, vectors,
                       has_mask ? ", a mask of a byte per score" : "", fixed_bytes / kMebibyte);
  }
};

// Returns the form of held memory for which the bytes left over differ least over a study's cells.
Held fit_held(const Published& published, std::string_view study) {
  constexpr int kMostVectors = 10;  // q, k, v, the result, their gradients, scratch
  std::vector<const PublishedAttention*> cells;
  double per_square = HUGE_VAL;
  std::int64_t longest = 0;
  for (const PublishedAttention& a : published.attention) {
    if (a.study == study) cells.push_back(&a), longest = std::max(longest, a.context);
  }
  for (const PublishedAttention* a : cells) {
    if (a->context != longest) continue;
    per_square = std::min(per_square, a->before_backward_mib * kMebibyte / square_bytes(longest));
  }
  Held best;
  double least = HUGE_VAL;
  for (int vectors = 3; vectors <= kMostVectors; ++vectors) {
    for (bool mask : {false, true}) {
      Held form{static_cast<int>(std::lround(per_square)), vectors, mask, 0};
      std::vector<double> rests, away;
      for (const PublishedAttention* a : cells) rests.push_back(form.rest(*a));
      form.fixed_bytes = median_of(rests);
      for (double r : rests) away.push_back(std::abs(r - form.fixed_bytes));
      // Most cells, not all: one altered figure must not choose the form.
      const double spread = quantile_of(away, 0.9);
      if (form.fixed_bytes < 0 || spread >= least) continue;
      least = spread;
      best = form;
    }
  }
  return best;
}

struct OurCell {
  double forward_ms = 0, backward_ms = 0;
};

// Returns our cell of the same size, preferably one that saves `saved` tensors of B·T².
OurCell our_cell(const ReplayInput& ours, const PublishedAttention& a, int saved) {
  const RunSpec run{.shape = {kAttentionBatch, a.context}};
  OurCell out;
  bool is_like = false;
  for (const ResultRow& row : ours.rows) {
    if (row.width() != static_cast<double>(a.width) || row.status() != "ok") continue;
    if (row.number("heads").value_or(1) != 1 || !is_of_attention_run(row, run, true)) continue;
    const std::string names = row.text("saved");
    const bool same = std::ranges::count(names, '+') + 1 == saved;
    if (out.forward_ms > 0 && (is_like || !same)) continue;
    out = {row.number("forward_median_ms").value_or(0),
           row.number("backward_median_ms").value_or(0)};
    is_like = same;
  }
  return out;
}

class AttentionJudge {
 public:
  AttentionJudge(const Published& published, const ReplayInput& ours)
      : published_(published), ours_(ours) {
    for (const PublishedAttention& a : published.attention) {
      if (!held_.contains(a.study)) held_.emplace(a.study, fit_held(published, a.study));
    }
    for (const auto& [study, held] : held_) pace_[study] = pace_of(study);
  }

  OurCell ours(const PublishedAttention& a) const {
    return our_cell(ours_, a, held_.at(a.study).squares);
  }

  ReplayVerdict bytes(const PublishedAttention& a) const {
    // Scratch of a library differs by some MiB between small and large cells.
    const double slack = std::max(20 * kMebibyte, 0.002 * a.before_backward_mib * kMebibyte);
    const Held& held = held_.at(a.study);
    const double off = held.rest(a) - held.fixed_bytes;
    if (std::abs(off) <= slack) return {Agreement::kAgree, "saved", held.words()};
    return {Agreement::kSuspicious, "unexplained",
            fmt::format("{:+.0f} MiB beside what the study's other cells have: {}", off / kMebibyte,
                        held.words())};
  }

  ReplayVerdict time(const PublishedAttention& a) const {
    if (a.backward_ms < a.forward_ms) {
      return {Agreement::kSuspicious, "backward_shorter_than_forward",
              fmt::format("backward takes {:.2f} of forward's time and moves more",
                          a.backward_ms / a.forward_ms)};
    }
    if (const PublishedDevice* device = known_device(a.device)) {
      // Scores and weights are each written and read once, at the least.
      const double least = 4 * square_bytes(a.context) / device->bandwidth_gb_s * 1e-6;
      if (a.forward_ms < least) {
        return {Agreement::kSuspicious, "faster_than_the_roof",
                fmt::format("moving scores and weights once each way takes {:.3g} ms", least)};
      }
    }
    if (const PublishedAttention* other = same_time_more_work(a)) {
      return {Agreement::kExplainable, "launch_bound",
              fmt::format("forward at {} takes as long: launches, not scores", other->context)};
    }
    const OurCell mine = ours(a);
    const double pace = pace_.at(a.study);
    if (mine.forward_ms <= 0 || pace <= 0) {
      return {Agreement::kNotCompared, "not_compared", "too few rows of ours measured such cells"};
    }
    const double off = a.forward_ms / mine.forward_ms / pace;
    const std::string text = fmt::format("forward {:.2f} times ours where {:.2f} is expected",
                                         a.forward_ms / mine.forward_ms, pace);
    if (off <= kSlack && off >= 1 / kSlack) return {Agreement::kAgree, "same_pace", text};
    if (off < 1) {
      return {Agreement::kExplainable, "launch_bound",
              text + ": our launches take their share here"};
    }
    return {Agreement::kSuspicious, "unexplained", text};
  }

 private:
  const PublishedAttention* same_time_more_work(const PublishedAttention& a) const {
    constexpr double kSameTime = 1.5;  // although one has at least four times the scores
    for (const PublishedAttention& other : published_.attention) {
      if (other.study != a.study || other.width != a.width || other.context == a.context) continue;
      if (std::max(a.forward_ms, other.forward_ms) <=
          kSameTime * std::min(a.forward_ms, other.forward_ms)) {
        return &other;
      }
    }
    return nullptr;
  }

  // The median ratio of a study's times to ours, at contexts that fill a device; 0: too few cells.
  double pace_of(const std::string& study) const {
    constexpr std::int64_t kLong = 4096;
    std::vector<double> ratios;
    for (const PublishedAttention& a : published_.attention) {
      if (a.study != study || a.context < kLong) continue;
      if (const OurCell mine = ours(a); mine.forward_ms > 0) {
        ratios.push_back(a.forward_ms / mine.forward_ms);
      }
    }
    return ratios.size() < 2 ? 0.0 : median_of(ratios);
  }

  const Published& published_;
  const ReplayInput& ours_;
  std::map<std::string, Held> held_;
  std::map<std::string, double> pace_;
};

}  // namespace

Table attention_replay_table(const Published& published, const ReplayInput& ours) {
  const AttentionJudge judge(published, ours);
  using A = const PublishedAttention&;
  const auto held = [](A a) { return a.before_backward_mib * kMebibyte; };
  const Fields<PublishedAttention> fields = {
      {col::study, &PublishedAttention::study},
      {col::width, &PublishedAttention::width},
      {col::context, &PublishedAttention::context},
      {col::forward_ms, &PublishedAttention::forward_ms},
      {real_column("forward_std_ms", "±", "ms", 2),
       [](A a) { return finite_or_null(a.forward_std_ms); }},
      {real_column("our_forward_ms", "ours", "ms", 2),
       [&](A a) { return positive_or_null(judge.ours(a).forward_ms); }},
      {col::backward_ms, &PublishedAttention::backward_ms},
      {real_column("backward_std_ms", "±", "ms", 2),
       [](A a) { return finite_or_null(a.backward_std_ms); }},
      {real_column("our_backward_ms", "ours", "ms", 2),
       [&](A a) { return positive_or_null(judge.ours(a).backward_ms); }},
      {col::verdict.titled("times"), [&](A a) { return name_of(judge.time(a).agreement); }},
      {col::reason, [&](A a) { return judge.time(a).text; }},
      {col::before_backward_bytes, [&](A a) { return static_cast<std::int64_t>(held(a)); }},
      {real_column("squares", "B·T²", "", 2, "tensors of that size that this would be"),
       [&](A a) { return held(a) / square_bytes(a.context); }},
      {col::peak_bytes,
       [](A a) {
         return a.peak_mib > 0 ? Json(static_cast<std::int64_t>(a.peak_mib * kMebibyte)) : Json();
       }},
      {real_column("peak_squares", "B·T²", "", 2, "tensors of that size that the peak would be"),
       [](A a) { return finite_or_null(a.peak_mib * kMebibyte / square_bytes(a.context)); }},
      {text_column("memory_verdict", "memory"),
       [&](A a) { return name_of(judge.bytes(a).agreement); }},
      {text_column("memory_reason", "reason"), [&](A a) { return judge.bytes(a).text; }}};
  Table table =
      table_of("published_attention", "Published attention benchmarks (batch 8, no heads, fp32)",
               fields, published.attention);
  table.notes.push_back(
      "the same benchmark holds 2, 3 or 1 tensors of B·T²: memory alone tells the implementation, "
      "and times of different ones cannot be compared");
  return table;
}

}  // namespace tracestep
