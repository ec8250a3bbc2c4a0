// Questions about compiling: what it gains for models and for attention, its bytes, its first
// start, and which rung of the ladder gains what.
#include <algorithm>
#include <cmath>

#include "lab/compile/tables.h"
#include "lab/measure/elsewhere.h"
#include "lab/measure/noise.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// "1.46"; closer to one with a third digit, which is the last that samples bear.
Text factor(const Quantity& q) {
  return decimal(q, std::abs(q.value - 1) >= 0.05 ? 2 : 3);
}

constexpr double kSameTime = 0.02;  // as the tables' "same" has it

// Words for two times whose ratio is, with all its noise, the same by the rule of the tables.
std::optional<Text> same_time(const Quantity& ratio) {
  const Relation small = compare_with_range(ratio, 1 - kSameTime, 1 + kSameTime);
  if (!small.is(Ordering::kEqual)) return std::nullopt;
  return because(
      small, say("takes, within {}, as long as", {percent(Quantity::constant(100 * kSameTime))}));
}

// Whether the tables' words say that two times are within that of each other.
bool is_same(const std::string& verdict) {
  return verdict == "same" || verdict.starts_with("slightly ");
}

// "is 1.46 times as fast as": how compiled stands to the other, by their samples.
Text gain(const Quantity& compiled, const Quantity& other) {
  if (const auto same = same_time(compiled / other)) return *same;
  return compare(compiled, other)
      .say({.less = say("is {} times as fast as", {factor(other / compiled)}),
            .equal = "takes as long as",
            .unclear = "is not apart beyond noise from",
            .more = say("takes {} times as long as", {factor(compiled / other)})});
}

// The same by the row's own comparison with the first row of its table, where `first` is that row:
// the answer says what the column "is" beside it says. `prefix`: of the comparison's columns.
Text gain_over_first(const Row& row, const Row& first, const std::string& prefix,
                     std::string_view samples) {
  const bool is_compared = row.has(prefix + "_low") && !first.has(prefix + "_speedup");
  if (!is_compared) return gain(median_in(row, samples), median_in(first, samples));
  const Quantity one = Quantity::constant(1);
  const Quantity speedup = row.get(prefix + "_speedup");
  // Time over time, as noise may move it.
  const Quantity ratio =
      between(one / speedup, one / row.get(prefix + "_high"), one / row.get(prefix + "_low"));
  const std::string verdict = row.text(prefix + "_verdict");
  if (is_same(verdict)) {
    const auto same = same_time(ratio);
    require(same.has_value(),
            "the row calls two times alike, which the interval of their ratio does not say");
    return *same;
  }
  const Relation order = compare(ratio, one);
  if (verdict == "unclear" && !order.is(Ordering::kUnclear)) {  // the test disagrees
    return say("is {} beside", {row.quote(prefix + "_verdict")});
  }
  const bool agrees = order.is(verdict == "faster"   ? Ordering::kLess
                               : verdict == "slower" ? Ordering::kMore
                                                     : Ordering::kUnclear);
  require(agrees, say("the comparison \"{}\" is not what the interval of its ratio says",
                      {row.quote(prefix + "_verdict")}));
  return order.say({.less = say("is {} times as fast as", {factor(speedup)}),
                    .unclear = "is not apart beyond noise from",
                    .more = say("takes {} times as long as", {factor(ratio)})});
}

// The three ways of one mode, and how compiled stands beside the others.
Text ways_of(const Evidence& e, const Row& compiled) {
  const Row eager = e.beside(compiled, {{"executor", "eager"}});
  const Row plain = e.beside(compiled, {{"executor", "eager"}, {"ops", "primitive"}});
  const Quantity ours = median_in(compiled, "samples_ms"), kernels = median_in(eager, "samples_ms"),
                 parts = median_in(plain, "samples_ms");
  return say(
      "{}: {} in plain ops, {} with composite kernels, {} compiled. Compiled {} plain ops and {} "
      "composite kernels. ",
      {compiled.quote("mode"), duration(parts), duration(kernels), duration(ours),
       gain_over_first(compiled, plain, "base", "samples_ms"), gain(ours, kernels)});
}

Row largest_step(const Evidence& e) {
  return e.largest("ways",
                   {{"mode", "step"}, {"ops", "fused"}, {"executor", "compiled"}, {"status", "ok"}},
                   "median_ms");
}

Text models(const Evidence& e) {
  const Row step = largest_step(e);
  return say("{}, context {}: ", {step.model(), whole(step.get("context"))}) +
         ways_of(e, e.beside(step, {{"mode", "forward"}})) + ways_of(e, step) +
         say("A step has {} nodes that launch kernels compiled, {} with composite kernels.",
             {whole(step.get("launches")),
              whole(e.beside(step, {{"executor", "eager"}}).get("launches"))});
}

// That the parts and the whole, timed apart, do not say the same of compiling.
Text parts_beside_whole(const Row& compiled, const Row& kernels) {
  const auto ms = [](const Row& row, const char* part) {
    return median_in(row, std::string(part) + "_samples_ms");
  };
  const auto parts = [&](const Row& row) { return ms(row, "forward") + ms(row, "backward"); };
  const Relation by_parts = compare(parts(compiled), parts(kernels)),
                 by_whole = compare(ms(compiled, "whole"), ms(kernels, "whole"));
  const bool are_opposite = (by_parts.is(Ordering::kMore) && by_whole.is(Ordering::kLess)) ||
                            (by_parts.is(Ordering::kLess) && by_whole.is(Ordering::kMore));
  if (!are_opposite) return {};
  return because(both(by_parts, by_whole),
                 "One of the parts and the whole has less compiled, the other more: nothing is "
                 "gained or lost for certain. ");
}

// Compiled over composite kernels at the contexts that the answer is not about.
Text at_other_contexts(const Evidence& e, const Row& main) {
  std::vector<Text> list;
  for (const Row& row : e.rows("attention_ways", {{"ops", "fused"},
                                                  {"executor", "compiled"},
                                                  {"attention", "naive"},
                                                  {"status", "ok"},
                                                  {"width", main.whole("width")}})) {
    if (row.whole("context") == main.whole("context")) continue;
    const auto kernels = e.find("attention_ways", {{"executor", "eager"},
                                                   {"ops", "fused"},
                                                   {"attention", "naive"},
                                                   {"status", "ok"},
                                                   {"precision", row.text("precision")},
                                                   {"width", row.whole("width")},
                                                   {"context", row.whole("context")}});
    if (!kernels) continue;
    const auto ratio = [&](const char* samples) {
      return factor(median_in(row, samples) / median_in(*kernels, samples));
    };
    list.push_back(
        say("{}, {} and {} at {}", {ratio("forward_samples_ms"), ratio("backward_samples_ms"),
                                    ratio("whole_samples_ms"), whole(row.get("context"))}));
  }
  if (list.empty()) return {};
  return say(
      "At other contexts forward, backward and the whole take, compiled over composite "
      "kernels: {}. ",
      {join(list, "; ")});
}

// The row of the table attention, whose runs are eager, that has the same attention with composite
// kernels: its times are other times of this row.
std::optional<Row> attention_alone(const Evidence& e, const Row& kernels) {
  return e.find("attention", {{"attention", kernels.text("attention")},
                              {"saved", "weights"},
                              {"causal", true},
                              {"status", "ok"},
                              {"device", kernels.text("device")},
                              {"precision", kernels.text("precision")},
                              {"batch", kernels.whole("batch")},
                              {"heads", 1},
                              {"width", kernels.whole("width")},
                              {"context", kernels.whole("context")}});
}

Text attention(const Evidence& e) {
  const Row compiled = e.largest(
      "attention_ways",
      {{"ops", "fused"}, {"executor", "compiled"}, {"attention", "naive"}, {"status", "ok"}},
      "context");
  const auto eager = [&](const char* ops) {
    return e.row("attention_ways", {{"executor", "eager"},
                                    {"ops", ops},
                                    {"attention", "naive"},
                                    {"precision", compiled.text("precision")},
                                    {"width", compiled.whole("width")},
                                    {"context", compiled.whole("context")}});
  };
  const Row plain = eager("primitive"), kernels = eager("fused");
  const std::optional<Row> alone = attention_alone(e, kernels);
  const auto part = [&](const std::string& name) {
    const std::string samples = name + "_samples_ms";
    const Quantity ours = median_in(compiled, samples), composite = median_in(kernels, samples);
    Text again;
    if (alone) {
      again = say("{} that takes {} with composite kernels. ",
                  {at_times(1), duration(median_in(*alone, samples))});
    }
    return say("{} takes {} in plain ops, {} with composite kernels and {} compiled. Compiled {} "
               "plain ops and {} composite kernels. ",
               {name.c_str(), duration(median_in(plain, samples)), duration(composite),
                duration(ours), gain_over_first(compiled, plain, name, samples),
                gain(ours, alone ? plus_minus(composite, median_in(*alone, samples) - composite)
                                 : composite)}) +
           again;
  };
  return say("Width {}, context {}: {}",
             {whole(compiled.get("width")), whole(compiled.get("context")), part("forward")}) +
         say("Its {}The {}", {part("backward"), part("whole")}) +
         parts_beside_whole(compiled, kernels) + at_other_contexts(e, compiled) +
         say("The peak is {} in plain ops, {} with composite kernels and {} compiled: all keep "
             "tensors of T² for backward, as naive attention does.",
             {bytes(plain.get("peak_bytes")), bytes(kernels.get("peak_bytes")),
              bytes(compiled.get("peak_bytes"))});
}

// "2.00 KiB less than", "98.50 KiB more than", "as much as": by the difference, since two figures
// that differ may be printed alike.
Text bytes_beside(const Quantity& a, const Quantity& b) {
  return compare(a, b).say({.less = say("{} less than", {bytes(b - a)}),
                            .equal = "as much as",
                            .more = say("{} more than", {bytes(a - b)})});
}

Text memory(const Evidence& e) {
  const Row step = largest_step(e), eager = e.beside(step, {{"executor", "eager"}});
  const Row plain = e.beside(step, {{"executor", "eager"}, {"ops", "primitive"}});
  return say("{}, context {}: a step peaks at {} in plain ops, {} with composite kernels and {} "
             "compiled, of which the arena is {}. ",
             {step.model(), whole(step.get("context")), bytes(plain.get("peak_bytes")),
              bytes(eager.get("peak_bytes")), bytes(step.get("peak_bytes")),
              bytes(step.get("arena_bytes"))}) +
         say("Compiled the peak is {} with composite kernels; for backward {} is kept, {} with "
             "composite kernels.",
             {bytes_beside(step.get("peak_bytes"), eager.get("peak_bytes")),
              bytes(step.get("saved_bytes")),
              bytes_beside(step.get("saved_bytes"), eager.get("saved_bytes"))});
}

// By how much the start behind another one is the shorter one.
Quantity start_gain(const Row& row) {
  return row.get("first_start_ms") / row.get("second_start_ms") - Quantity::constant(1);
}

// The rows of the table that were started twice.
std::vector<Row> started(const Evidence& e, const char* executor) {
  std::vector<Row> out = e.rows("ways", {{"executor", executor}, {"status", "ok"}});
  std::erase_if(out, [](const Row& row) {
    return !row.has("first_start_ms") || !row.has("second_start_ms");
  });
  return out;
}

// That every compiled row gains by another start, where that is so.
Text all_gain(const Evidence& e) {
  std::optional<Relation> all;
  const std::vector<Row> rows = started(e, "compiled");
  for (const Row& row : rows) {
    const Relation shorter = compare(start_gain(row), Quantity::constant(0));
    if (!shorter.is(Ordering::kMore)) return {};
    all = all ? both(*all, shorter) : shorter;
  }
  if (!all) return {};
  return say("In all {} compiled rows {}. ", {whole(count_of(rows, "second_start_ms")),
                                              because(*all, "the other start gains time")});
}

// What the other start may have found that the first one kept: only what it gains beyond the swing
// of eager starts of any model, which keep nothing.
Text kept_by_the_first(const Evidence& e, const Row& compiled) {
  const std::vector<Row> eager = started(e, "eager");
  require(!eager.empty(), "no eager row was started again");
  const auto swing = [](const Row& row) {
    const Quantity gain = start_gain(row);
    return gain.value < 0 ? -1.0 * gain : gain;
  };
  const Row widest =
      *std::ranges::max_element(eager, {}, [&](const Row& row) { return swing(row).value; });
  return say("Eager starts, which keep nothing, swing widest in {} ({}, {} ops), by {}. ",
             {widest.quote("size"), widest.quote("mode"), widest.quote("ops"),
              percent(100.0 * swing(widest))}) +
         compare(start_gain(compiled), swing(widest))
             .say({.less = "Compiled, the other start gains less than that, so nothing shows of "
                           "kernels that the one before it has kept. ",
                   .equal = "Compiled, the other start gains as much as that, so nothing shows of "
                            "kernels that the one before it has kept. ",
                   .more = "Compiled, the other start gains more than that: where a device "
                           "compiles kernels, it finds those that the one before it has kept. "}) +
         all_gain(e);
}

Text starts(const Evidence& e) {
  const Row step = largest_step(e), eager = e.beside(step, {{"executor", "eager"}}),
            plain = e.beside(step, {{"executor", "eager"}, {"ops", "primitive"}});
  return say("{}: until the end of its first step, eager takes {} when started once and {} when "
             "started again, in plain ops {} and {}; compiled takes {} and {}. ",
             {step.model(), duration(eager.get("first_start_ms")),
              duration(eager.get("second_start_ms")), duration(plain.get("first_start_ms")),
              duration(plain.get("second_start_ms")), duration(step.get("first_start_ms")),
              duration(step.get("second_start_ms"))}) +
         kept_by_the_first(e, step) +
         "The device's own start and filling in weights are left out; each is a single "
         "measurement.";
}

Text saved(const Evidence& e) {
  const Row parts =
      e.row("saved_ways", {{"part", "norm"}, {"ops", "primitive"}, {"executor", "eager"}});
  const auto row = [&](const char* part, const char* ops, const char* executor) {
    return e.row(
        "saved_ways",
        {{"part", part}, {"ops", ops}, {"executor", executor}, {"size", parts.text("size")}});
  };
  const Row whole_norm = row("norm", "fused", "eager"), compiled = row("norm", "fused", "compiled"),
            layer = row("layer", "primitive", "eager"),
            whole_layer = row("layer", "fused", "eager"),
            compiled_layer = row("layer", "fused", "compiled");
  return say("{}: backward of a norm in parts reads {} tensors of forward ({} together), {} of "
             "them as "
             "large as the residual stream; of a norm as one kernel {} ({} together), {} of them "
             "so "
             "large. ",
             {parts.model(), whole(parts.get("tensors")), bytes(parts.get("bytes")),
              whole(parts.get("full_size")), whole(whole_norm.get("tensors")),
              bytes(whole_norm.get("bytes")), whole(whole_norm.get("full_size"))}) +
         compare(compiled.get("bytes"), whole_norm.get("bytes"))
             .say({.less = "Compiling it saves bytes, less is kept. ",
                   .equal = "Compiling it changes nothing there: the bytes are equal. ",
                   .more = "Compiling it costs bytes, more is kept. "}) +
         say("A whole layer keeps {} in parts, {} with composite kernels and {} compiled.",
             {bytes(layer.get("bytes")), bytes(whole_layer.get("bytes")),
              bytes(compiled_layer.get("bytes"))});
}

// What a rung has to gain for the table's "faster".
Text beyond_the_same() {
  return say("beyond noise, with an interval that passes {}",
             {percent(Quantity::constant(100 * kSameTime))});
}

// Rungs that differ from the one before them beyond noise, and that no other sentence names: those
// that lose, and those that gain no more than what the table calls slight.
Text other_rungs(const std::vector<Row>& rungs) {
  std::vector<Text> losing, gaining;
  for (const Row& row : rungs) {
    if (row.text_or("changes", "") == "nothing" || !row.has("rung_low")) continue;
    const Quantity speedup =
        between(row.get("rung_speedup"), row.get("rung_low"), row.get("rung_high"));
    const Relation order = compare(speedup, Quantity::constant(1));
    const bool is_slight = is_same(row.text("rung_verdict"));
    if (order.is(Ordering::kLess)) {
      losing.push_back(say(
          "{} ({} {})", {row.quote("rung"), decimal(speedup, 3), because(order, "times as fast")}));
    } else if (order.is(Ordering::kMore) && is_slight) {
      gaining.push_back(
          because(order, say("{} ({} times)", {row.quote("rung"), decimal(speedup, 3)})));
    }
  }
  Text out;
  if (!losing.empty()) {
    out += say("Beyond noise these lose against the rung before them: {}. ", {join(losing, ", ")});
  }
  if (gaining.empty()) return out;
  return out + say("Beyond noise, with an interval that does not pass {}, these gain: {}. ",
                   {percent(Quantity::constant(100 * kSameTime)), join(gaining, ", ")});
}

// That nothing gains after the last rung that does, where there are others after it.
Text rungs_behind(const Row& last, const std::vector<Row>& rungs) {
  const auto is_last = [&](const Row& row) { return row.text("rung") == last.text("rung"); };
  const std::vector<Row> behind(std::next(std::ranges::find_if(rungs, is_last)), rungs.end());
  if (behind.empty()) return {};
  return say("Behind {} {}{}. ",
             {last.quote("rung"),
              because(compare(count_of(behind, "rung_verdict", "faster"), Quantity::constant(0)),
                      "no rung by itself gains "),
              beyond_the_same()});
}

// Which of the rungs that gain gains most, and which lose. A rung that changes nothing is the same
// step measured again: where its two times differ, nothing is said of the others.
Text best_rung(const std::vector<Row>& rungs) {
  std::vector<Row> gaining;
  for (const Row& row : rungs) {
    const std::string change = row.text("rung_verdict");
    if (row.text_or("changes", "") != "nothing") {
      if (change == "faster") gaining.push_back(row);
    } else if (change == "faster" || change == "slower") {
      return say(
          "{} changes nothing, and yet its median stands to that of the rung before it as {}: "
          "the machine was not steady, and this ladder does not tell what a rung gains. ",
          {row.quote("rung"), decimal(Quantity::constant(1) / row.get("rung_speedup"))});
    }
  }
  if (gaining.empty()) {
    return because(compare(count_of(rungs, "rung_verdict", "faster"), Quantity::constant(0)),
                   "No rung by itself gains ") +
           beyond_the_same() + ". " + other_rungs(rungs);
  }
  const Row best = *std::ranges::max_element(
      gaining, {}, [](const Row& row) { return row.get("rung_speedup").value; });
  return say("Of the rungs that gain {}, {} {}, {} times. ",
             {beyond_the_same(), because(leads(best, gaining, "rung_speedup"), "most comes from"),
              best.quote("rung"), decimal(best.get("rung_speedup"))}) +
         rungs_behind(gaining.back(), rungs) + other_rungs(rungs);
}

// "epilogue"; "none".
Text rungs_without_work(const std::vector<Row>& rungs) {
  std::vector<Text> list;
  for (const Row& row : rungs) {
    if (row.text_or("changes", "") == "nothing") list.push_back(row.quote("rung"));
  }
  if (!list.empty()) return join(list, ", ");
  return because(compare(count_of(rungs, "changes", "nothing"), Quantity::constant(0)), "none");
}

Text ladder(const Evidence& e) {
  const std::vector<Row> all = e.rows("ladder", {{"status", "ok"}});
  std::vector<Row> rungs;
  for (const Row& row : all) {
    if (row.has("rung_speedup")) rungs.push_back(row);
  }
  require(!rungs.empty(), "no rung was held against another");
  const Row &ground = all.front(), &top = all.back();
  require(!ground.has("rung_speedup"), "the step that all rungs are held against is not there");
  const Quantity first = median_in(ground, "samples_ms"), last = median_in(top, "samples_ms");
  return say("A step of {} takes {} as {}, and {} with the rungs up to {}, which {} {}. ",
             {ground.model(), duration(first), ground.quote("rung"), duration(last),
              top.quote("rung"), gain(last, first), ground.quote("rung")}) +
         best_rung(rungs) +
         say("Nodes that launch kernels go from {} to {}, modelled traffic from {} to {}, the "
             "error of "
             "gradients (of such a model with {}) from {} to {}. Rungs that find nothing to "
             "do here: {}.",
             {whole(ground.get("launches")), whole(top.get("launches")),
              bytes(ground.get("moved_bytes")), bytes(top.get("moved_bytes")),
              counted(ground.get("error_layers"), "layer"),
              significant(ground.get("gradient_error"), 2),
              significant(top.get("gradient_error"), 2), rungs_without_work(rungs)});
}

constexpr Question kQuestions[] = {
    {"compiled", "Compiling", "What does compiling a model gain, forward and in a whole step?",
     "tracestep compile --part steps", models},
    {"compiled-attention", "Compiling", "What does compiling attention gain, forward and backward?",
     "tracestep compile --part attention", attention},
    {"compiled-memory", "Compiling", "Does compiling save memory?",
     "tracestep compile --part steps", memory},
    {"compiled-start", "Compiling", "How long is the first start, and the second?",
     "tracestep compile --part steps", starts},
    {"compiled-saved", "Compiling", "What does a norm keep for backward, eager and compiled?",
     "tracestep compile --part saved", saved},
    {"ladder", "Compiling", "Which rung from a plain step to the compiled one gains what?",
     "tracestep compile --part ladder", ladder},
};

}  // namespace

std::span<const Question> compile_questions() {
  return kQuestions;
}

}  // namespace tracestep
