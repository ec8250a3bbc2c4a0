// Questions about compiling: what it gains for models and for attention, its bytes, its first
// start, and which rung of the ladder gains what.
#include <algorithm>

#include "lab/compile/tables.h"
#include "lab/measure/noise.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// "is 1.46 times as fast as": how compiled stands to the other, by their samples.
Text gain(const Quantity& compiled, const Quantity& other) {
  return compare(compiled, other)
      .say({.less = say("is {} times as fast as", {decimal(other / compiled)}),
            .equal = "takes as long as",
            .unclear = "is not apart beyond noise from",
            .more = say("takes {} times as long as", {decimal(compiled / other)})});
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
       gain(ours, parts), gain(ours, kernels)});
}

Row largest_step(const Evidence& e) {
  return e.largest("ways",
                   {{"mode", "step"}, {"ops", "fused"}, {"executor", "compiled"}, {"status", "ok"}},
                   "median_ms");
}

Text models(const Evidence& e) {
  const Row step = largest_step(e);
  return say("{}, context {}: ", {step.quote("size"), whole(step.get("context"))}) +
         ways_of(e, e.beside(step, {{"mode", "forward"}})) + ways_of(e, step) +
         say("A step has {} nodes that launch kernels compiled, {} with composite kernels.",
             {whole(step.get("launches")),
              whole(e.beside(step, {{"executor", "eager"}}).get("launches"))});
}

Text attention(const Evidence& e) {
  const Row compiled = e.largest(
      "attention_ways",
      {{"ops", "fused"}, {"executor", "compiled"}, {"attention", "naive"}, {"status", "ok"}},
      "context");
  const Row plain = e.row("attention_ways", {{"executor", "eager"},
                                             {"ops", "primitive"},
                                             {"attention", "naive"},
                                             {"precision", compiled.text("precision")},
                                             {"width", compiled.whole("width")},
                                             {"context", compiled.whole("context")}});
  const auto part = [&](const char* name, const char* samples) {
    const Quantity ours = median_in(compiled, samples), theirs = median_in(plain, samples);
    return say("{} takes {} in plain ops and {} compiled, which {} plain ops",
               {name, duration(theirs), duration(ours), gain(ours, theirs)});
  };
  return say("Width {}, context {}: {}; {}. ",
             {whole(compiled.get("width")), whole(compiled.get("context")),
              part("forward", "forward_samples_ms"), part("backward", "backward_samples_ms")}) +
         say("The peak is {} in plain ops and {} compiled: both keep tensors of S² for backward, "
             "as "
             "naive attention does.",
             {bytes(plain.get("peak_bytes")), bytes(compiled.get("peak_bytes"))});
}

Text memory(const Evidence& e) {
  const Row step = largest_step(e), eager = e.beside(step, {{"executor", "eager"}});
  const Row plain = e.beside(step, {{"executor", "eager"}, {"ops", "primitive"}});
  return say("{}, context {}: a step peaks at {} in plain ops, {} with composite kernels and {} "
             "compiled, of which the arena is {}. ",
             {step.quote("size"), whole(step.get("context")), bytes(plain.get("peak_bytes")),
              bytes(eager.get("peak_bytes")), bytes(step.get("peak_bytes")),
              bytes(step.get("arena_bytes"))}) +
         compare(step.get("saved_bytes"), eager.get("saved_bytes"))
             .say({.less = say("Compiled keeps less for backward, {} and not {}.",
                               {bytes(step.get("saved_bytes")), bytes(eager.get("saved_bytes"))}),
                   .equal =
                       say("Compiled and with composite kernels the same is kept for backward: {}.",
                           {bytes(step.get("saved_bytes"))}),
                   .more = say("Compiled keeps more for backward, {} and not {}.",
                               {bytes(step.get("saved_bytes")), bytes(eager.get("saved_bytes"))})});
}

Text starts(const Evidence& e) {
  const Row step = largest_step(e), eager = e.beside(step, {{"executor", "eager"}});
  return say(
      "{}: until the end of its first step, eager takes {} when started once and {} when started "
      "again; compiled takes {} and {}. Where a device compiles kernels, the other start finds "
      "those that the one before it has kept. The device's own start and filling in weights are "
      "left out; each is a single measurement.",
      {step.quote("size"), duration(eager.get("first_start_ms")),
       duration(eager.get("second_start_ms")), duration(step.get("first_start_ms")),
       duration(step.get("second_start_ms"))});
}

Text saved(const Evidence& e) {
  const auto row = [&](const char* part, const char* ops) {
    return e.row("saved_ways", {{"part", part}, {"ops", ops}, {"executor", "eager"}});
  };
  const Row parts = row("norm", "primitive"), whole_norm = row("norm", "fused"),
            compiled =
                e.row("saved_ways", {{"part", "norm"}, {"ops", "fused"}, {"executor", "compiled"}}),
            layer = row("layer", "primitive"), whole_layer = row("layer", "fused"),
            compiled_layer = e.row("saved_ways",
                                   {{"part", "layer"}, {"ops", "fused"}, {"executor", "compiled"}});
  return say("Backward of a norm in parts reads {} tensors of forward ({} together), {} of them as "
             "large as the residual stream; of a norm as one kernel {} ({} together), {} of them "
             "so "
             "large. ",
             {whole(parts.get("tensors")), bytes(parts.get("bytes")), whole(parts.get("full_size")),
              whole(whole_norm.get("tensors")), bytes(whole_norm.get("bytes")),
              whole(whole_norm.get("full_size"))}) +
         compare(compiled.get("bytes"), whole_norm.get("bytes"))
             .say({.less = "Compiling it saves bytes, less is kept. ",
                   .equal = "Compiling it changes nothing there: the bytes are equal. ",
                   .more = "Compiling it costs bytes, more is kept. "}) +
         say("A whole layer keeps {} in parts, {} with composite kernels and {} compiled.",
             {bytes(layer.get("bytes")), bytes(whole_layer.get("bytes")),
              bytes(compiled_layer.get("bytes"))});
}

// Which of the rungs that gain beyond noise gains most. A rung that changes nothing is the same
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
                   "No rung by itself gains beyond noise. ");
  }
  const Row best = *std::ranges::max_element(
      gaining, {}, [](const Row& row) { return row.get("rung_speedup").value; });
  return say("{} {}, {} times. ", {because(leads(best, gaining, "rung_speedup"),
                                           "Of the rungs that gain beyond noise, most comes from"),
                                   best.quote("rung"), decimal(best.get("rung_speedup"))});
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
  return say("A step takes {} as {}, and {} with the rungs up to {}, which {} {}. ",
             {duration(first), ground.quote("rung"), duration(last), top.quote("rung"),
              gain(last, first), ground.quote("rung")}) +
         best_rung(rungs) +
         say("Launches go from {} to {}, modelled traffic from {} to {}, the error of gradients "
             "from {} to {}. {} of the rungs find nothing to do here.",
             {whole(ground.get("launches")), whole(top.get("launches")),
              bytes(ground.get("moved_bytes")), bytes(top.get("moved_bytes")),
              significant(ground.get("gradient_error"), 2),
              significant(top.get("gradient_error"), 2),
              whole(count_of(rungs, "changes", "nothing"))});
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
