// Attention by itself, eager and compiled.
#include <algorithm>

#include "lab/attention/tables.h"
#include "lab/compile/against.h"
#include "lab/compile/tables.h"
#include "lab/measure/validity.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

struct AttentionWay {
  struct Part {
    TimedSamples samples;
    std::optional<Against> against;
  };
  const AttentionResult& r;
  Part forward, backward, whole;
};

bool is_same_attention(const AttentionSpec& a, const AttentionSpec& b) {
  return a.width == b.width && a.causal == b.causal && a.run.shape.batch == b.run.shape.batch &&
         a.run.shape.context == b.run.shape.context && a.run.precision == b.run.precision;
}

// The ops of attention: primitive ones if it computes softmax in parts.
Granularity ops_of(const AttentionSpec& spec) {
  return spec.saved.exp ? Granularity::kPrimitive : Granularity::kFused;
}

AttentionWay attention_way(std::span<const AttentionResult> results, const AttentionResult& r) {
  const auto base = std::ranges::find_if(results, [&](const AttentionResult& other) {
    return other.status == Status::kOk && is_same_attention(other.spec, r.spec);
  });
  const bool has_base = base != results.end() && &*base != &r;
  const auto part = [&](PartTimes AttentionResult::*member) {
    const auto samples = [member](const AttentionResult& of) {
      return TimedSamples((of.*member).samples_ms, of.visits, true);
    };
    const std::optional<TimedSamples> of_base =
        has_base ? std::optional(samples(*base)) : std::nullopt;
    return AttentionWay::Part{samples(r), Against::of(of_base, samples(r))};
  };
  return {r, part(&AttentionResult::forward), part(&AttentionResult::backward),
          part(&AttentionResult::whole)};
}

// The row's key: everything that identifies it, under the names of `compile`'s flags.
Json key_of_way(const AttentionResult& r) {
  Json out = part_of_key(r.spec.run, [](const RunField& f) {
    return is_of_attention(f) && f.group == FieldGroup::kHow;
  });
  out["ops"] = name_of(ops_of(r.spec));
  out["width"] = r.spec.width;
  out["attention_context"] = r.spec.run.shape.context;
  return out;
}

void add_part(Fields<AttentionWay>& out, const std::string& name,
              AttentionWay::Part AttentionWay::*part) {
  out.add(time_fields(name + "_", name),
          [part](const AttentionWay& way) { return &(way.*part).samples; });
  out.add(against_fields(name, "against first", "the first row of the same attention"),
          [part](const AttentionWay& way) { return (way.*part).against; });
}

Fields<AttentionWay> attention_fields() {
  using W = const AttentionWay&;
  Fields<AttentionWay> out = {
      {as_key(col::batch("B")), [](W w) { return w.r.spec.run.shape.batch; }},
      {as_key(col::width("D; there are no heads")), [](W w) { return w.r.spec.width; }},
      {as_key(col::context("T")), [](W w) { return w.r.spec.run.shape.context; }},
      {as_key(col::precision), [](W w) { return name_of(w.r.spec.run.precision); }},
      {as_key(col::ops("softmax in parts, or as one kernel")),
       [](W w) { return name_of(ops_of(w.r.spec)); }},
      {as_key(col::attention("its form: naive or flash")),
       [](W w) { return name_of(w.r.spec.run.attention); }},
      {as_key(text_column("executor")), [](W w) { return name_of(w.r.spec.run.executor); }},
      {as_key(text_column("compile_passes", "", "of the executor, or named")),
       [](W w) { return key_of(w.r.spec.run).at("compile_passes"); }},
      {as_key(col::device), [](W w) { return w.r.device; }},
      {col::status("ok or oom"), [](W w) { return name_of(w.r.status); }}};
  add_part(out, "forward", &AttentionWay::forward);
  add_part(out, "backward", &AttentionWay::backward);
  add_part(out, "whole", &AttentionWay::whole);
  const auto if_ok = [](W w, std::int64_t value) { return when(w.r.status == Status::kOk, value); };
  out.add(as_exact(col::launches("of both parts; each runs one kernel or more")),
          [if_ok](W w) { return if_ok(w, w.r.whole.launches); });
  out.add(as_exact(col::peak_bytes("the most of the whole step")),
          [if_ok](W w) { return if_ok(w, w.r.peak_bytes); });
  out.add(data_only(col::detail("why the status is not ok")),
          [](W w) { return or_null(w.r.detail); });
  out.add(verdict_column(), [](W) { return Json(); });
  out.add(data_only(col::cell), [](W w) { return key_of_way(w.r); });
  return out;
}

}  // namespace

Table way_attention_table(std::span<const AttentionResult> results) {
  std::vector<AttentionWay> rows;
  for (const AttentionResult& r : results) rows.push_back(attention_way(results, r));
  Table table = table_of("attention_ways", "Attention by itself, eager and compiled",
                         attention_fields(), rows);
  empty_times_of(results, table);
  table.notes = {
      "forward and backward are timed with a stop between them, where nothing is replayed as a "
      "graph; whole is without a stop",
      kIsNote};
  add_verdicts(table, results, Json::object());
  return table;
}

}  // namespace tracestep
