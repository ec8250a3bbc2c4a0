// Compares published gains of compiling with ours: a gain is a ratio of two times on one device, so
// devices can be compared, as far as both times are bound by the same thing.
#include <fmt/format.h>

#include "course/modelled.h"
#include "course/ours.h"
#include "course/published.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr double kSame = 1.05;  // gains closer to 1 than this are none

struct OurPair {
  double eager_ms = 0, compiled_ms = 0;  // 0: none
  double eager_bytes = 0, compiled_bytes = 0;

  bool has_times() const { return eager_ms > 0 && compiled_ms > 0; }
  bool has_bytes() const { return eager_bytes > 0 && compiled_bytes > 0; }
  double gain() const { return eager_ms / compiled_ms; }
};

// Returns the run of plain ops to which a published pair of eager and compiled times belongs.
RunSpec eager_run(const PublishedPair& p) {
  constexpr std::int64_t kSequences = 8;
  if (p.width == 0) return run_of({p.size, p.context, "fp32", p.pass});
  return {.shape = {kSequences, p.context}, .ops = Granularity::kPrimitive};
}

bool is_of(const ResultRow& row, const PublishedPair& p, const RunSpec& run) {
  if (row.status() != "ok") return false;
  if (p.width == 0) return is_of_run(row, run);
  return row.width() == static_cast<double>(p.width) && is_of_attention_run(row, run, false);
}

OurPair our_pair(const ReplayInput& ours, const PublishedPair& p) {
  OurPair out;
  if (p.context == 0) return out;
  const std::string time = p.width == 0 ? "median_ms" : p.pass + "_median_ms";
  const RunSpec eager = eager_run(p);
  RunSpec compiled = eager;
  compiled.ops = Granularity::kFused;
  compiled.executor = ExecutorKind::kCompiled;
  for (const ResultRow& row : ours.rows) {
    const double ms = row.number(time).value_or(0), bytes = row.peak_bytes().value_or(0);
    if (is_of(row, p, compiled)) {
      out.compiled_ms = ms;
      out.compiled_bytes = bytes;
    }
    if (is_of(row, p, eager)) {
      out.eager_ms = ms;
      out.eager_bytes = bytes;
    }
  }
  return out;
}

// Finds a cell of this attention with at least sixteen times the scores that takes compiled about
// as long, which casts doubt on both times; nullptr: there is none.
const PublishedPair* same_time_more_work(const Published& published, const PublishedPair& p) {
  for (const PublishedPair& other : published.pairs) {
    const bool is_like = other.study == p.study && other.width == p.width && p.width > 0 &&
                         other.pass == p.pass && other.context >= 4 * p.context;
    if (is_like && other.compiled_ms <= 1.5 * p.compiled_ms) return &other;
  }
  return nullptr;
}

int direction(double gain) {
  return gain > kSame ? 1 : gain < 1 / kSame ? -1 : 0;
}

ReplayVerdict judge(const Published& published, const PublishedPair& p, const OurPair& mine) {
  if (const PublishedPair* other = same_time_more_work(published, p)) {
    return {Agreement::kExplainable, "host_bound",
            fmt::format("compiled takes {:.2g} ms, and {:.2g} ms at {} with {} times the scores: "
                        "the host's time, not the device's",
                        p.compiled_ms, other->compiled_ms, other->context,
                        (other->context / p.context) * (other->context / p.context))};
  }
  if (p.context == 0) {
    return {Agreement::kNotCompared, "not_compared", "its context is not stated"};
  }
  if (!mine.has_times()) {
    return {Agreement::kNotCompared, "not_compared",
            "ours has no pair of this: primitive ops run eagerly, and fused ones compiled"};
  }
  const std::string text =
      fmt::format("{:.2f} times as fast there, {:.2f} times here", p.gain(), mine.gain());
  if (direction(p.gain()) == direction(mine.gain())) {
    return {Agreement::kAgree, "same_direction", text};
  }
  return {Agreement::kSuspicious, "other_direction", text + ", and its table does not say why"};
}

double less_percent(double eager, double compiled) {
  return 100 * (1 - compiled / eager);
}

}  // namespace

Table pair_replay_table(const Published& published, const ReplayInput& ours) {
  struct Row {
    const PublishedPair& p;
    OurPair mine;
    ReplayVerdict verdict;
  };
  using R = const Row&;
  const Fields<Row> fields = {
      {col::study, [](R r) { return r.p.study; }},
      {col::size("of a model; empty: attention"), [](R r) { return or_null(r.p.size); }},
      {col::width("of attention"), [](R r) { return when(r.p.width > 0, r.p.width); }},
      {col::context, [](R r) { return when(r.p.context > 0, r.p.context); }},
      {col::pass, [](R r) { return r.p.pass; }},
      {real_column("eager_ms", "eager", "ms", 2), [](R r) { return r.p.eager_ms; }},
      {real_column("compiled_ms", "compiled", "ms", 2), [](R r) { return r.p.compiled_ms; }},
      {real_column("gain", "gain", "x", 2, "eager over compiled"), [](R r) { return r.p.gain(); }},
      {real_column("our_gain", "ours", "x", 2,
                   "primitive ops run eagerly over fused ones, compiled"),
       [](R r) { return when(r.mine.has_times(), r.mine.gain()); }},
      {real_column("memory_percent", "memory saved", "%", 1, "at the peak"),
       [](R r) { return finite_or_null(less_percent(r.p.eager_gb, r.p.compiled_gb)); }},
      {real_column("our_memory_percent", "ours", "%", 1),
       [](R r) {
         return when(r.mine.has_bytes(), less_percent(r.mine.eager_bytes, r.mine.compiled_bytes));
       }},
      {col::verdict, [](R r) { return name_of(r.verdict.agreement); }},
      {col::code, [](R r) { return r.verdict.code; }},
      {col::reason, [](R r) { return r.verdict.text; }}};
  std::vector<Row> rows;
  for (const PublishedPair& p : published.pairs) {
    const OurPair mine = our_pair(ours, p);
    rows.push_back({p, mine, judge(published, p, mine)});
  }
  Table table = table_of("published_compiled", "Published gains of compiling beside ours (fp32)",
                         fields, rows);
  table.notes.push_back(
      "a gain is of one device: eager PyTorch over torch.compile there, primitive ops run eagerly "
      "over fused ones compiled here; agree: both gain, both lose, or neither by 5 %");
  return table;
}

}  // namespace tracestep
