// Questions about the time of whole steps: passes, warm-up, noise, sizes, contexts.
#include <algorithm>
#include <set>

#include "lab/measure/elsewhere.h"
#include "lab/measure/judged.h"
#include "lab/measure/noise.h"
#include "lab/report/question.h"
#include "lab/time/tables.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

Row step_row(const Evidence& e) {
  return e.largest("cells", {{"mode", "step"}, {"ops", "fused"}, {"status", "ok"}}, "flops");
}

Text label(const Row& row) {
  return row.name();
}

// "forward 23.0 % (6 samples)"
Text spread(const char* name, const Row& row) {
  return say("{} {} ({} samples)", {name, percent(spread_percent_in(row, "samples_ms")),
                                    whole(count_in(row, "samples_ms"))});
}

// What the optimizer's kernels take where the same cell was profiled.
Text optimizer_in_profile(const Evidence& e, const Row& step) {
  for (const Row& pass : e.same_cell(step, "passes")) {
    const bool is_it = pass.text("pass") == "optimizer" && pass.text_or("status", "ok") == "ok";
    if (is_it) {
      return say("In the profile of that cell its kernels take {}. ", {duration(pass.get("ms"))});
    }
  }
  return {};
}

// What AdamW adds to a step, unless noise hides it, and what a profile of the same cell says.
Text optimizer_part(const Evidence& e, const Row& step, const Quantity& s, const Quantity& fb) {
  const Relation longer = compare(s, fb);
  if (longer.is(Ordering::kMore)) {
    return because(longer, "A whole step takes longer: ") +
           say("AdamW adds {}. ", {duration(s - fb)}) + optimizer_in_profile(e, step);
  }
  require(!longer.is(Ordering::kLess),
          say("a whole step ({}) is {}, which cannot be",
              {duration(s), because(longer, "shorter than its forward and backward")}));
  Text out = longer.say({.equal = "A whole step takes as long, so AdamW's part does not show. ",
                         .unclear = "AdamW's part cannot be told: the times of a whole step and of "
                                    "forward and backward are not apart beyond their noise, their "
                                    "other times among it. "});
  return out + optimizer_in_profile(e, step);
}

// Every timed cell in fused kernels, one after the other; empty where there is only one.
Text every_cell(const Evidence& e) {
  std::vector<Text> list;
  for (const Row& forward :
       e.rows("cells", {{"mode", "forward"}, {"ops", "fused"}, {"status", "ok"}})) {
    const auto in_mode = [&](const char* mode) {
      return e.find("cells", {{"size", forward.text("size")},
                              {"context", forward.whole("context")},
                              {"mode", mode},
                              {"ops", "fused"},
                              {"status", "ok"}});
    };
    const auto with_backward = in_mode("forward-backward"), step = in_mode("step");
    if (!with_backward || !step) continue;
    list.push_back(say("{} at context {}, vocabulary {}: {}, {} and {}",
                       {forward.quote("size"), whole(forward.get("context")),
                        whole(forward.get("vocab")), duration(median_in(forward, "samples_ms")),
                        duration(median_in(*with_backward, "samples_ms")),
                        duration(median_in(*step, "samples_ms"))}));
  }
  if (list.size() < 2) return {};
  return say(" By size, forward, forward with backward, and a whole step: {}.", {join(list, "; ")});
}

Text pass_times(const Evidence& e) {
  const Row step = step_row(e), forward = e.beside(step, {{"mode", "forward"}, {"status", "ok"}}),
            with_backward = e.beside(step, {{"mode", "forward-backward"}, {"status", "ok"}});
  const Quantity f = median_anywhere(e, forward), fb = median_anywhere(e, with_backward),
                 s = median_anywhere(e, step);
  const Relation longer = compare(fb, f);
  require(longer.is(Ordering::kMore),
          say("forward with backward ({}) is {}, so their difference says nothing",
              {duration(fb), because(longer, "not longer than forward alone beyond noise")}));
  const Quantity ratio = (fb - f) / f;
  const char* const kProducts = ", the ratio of their matrix products";
  return say("{}: forward takes {}, backward {} (forward and backward together, minus forward). "
             "Forward and backward together are {} times forward; backward is {} times forward. ",
             {label(step), duration(f), duration(fb - f), decimal(fb / f), decimal(ratio)}) +
         compare_with_range(ratio, 1.6, 2.4)
             .say({.less = Text("Backward is below twice forward") + kProducts +
                           ": work beside the products, or waiting, takes part. ",
                   .equal = Text("That is about twice") + kProducts + ". ",
                   .unclear = Text("Noise leaves open whether that is twice") + kProducts + ". ",
                   .more = Text("Backward is above twice forward") + kProducts +
                           ": work beside the products, or waiting, takes part. "}) +
         optimizer_part(e, step, s, fb) +
         say("The range of the samples, in percent of their median: {}, {}, {}; those of a row "
             "follow "
             "each other, so this says nothing of another start.",
             {spread("forward", forward), spread("with backward", with_backward),
              spread("whole step", step)}) +
         at_other_times(e, forward, "forward") +
         at_other_times(e, with_backward, "forward with backward") +
         at_other_times(e, step, "the whole step") + every_cell(e);
}

// How long the first steps of all processes took: each row of the table is a start of its own. A
// cause is given when every one of them was longer than the steps after it.
Text first_steps(const std::vector<Row>& rows, const Quantity& settled) {
  std::vector<Text> list;
  std::optional<Relation> all;
  bool are_longer = true;
  for (const Row& row : rows) {
    const Quantity first = row.get("start_ms");
    list.push_back(duration(first));
    const Relation longer = compare(
        first, plus_minus(row.get("median_ms"), row.get("std_ms")) * Quantity::constant(1.1));
    are_longer = are_longer && longer.is(Ordering::kMore);
    all = all ? both(*all, longer) : longer;
  }
  Text out = say("The very first steps of {} processes take {}, from {} to {} times that. ",
                 {whole(count_of(rows, "start_ms")), join(list, ", "),
                  decimal(least_of(rows, "start_ms") / settled),
                  decimal(most_of(rows, "start_ms") / settled)});
  if (!are_longer) return out;
  return out +
         because(*all,
                 "Each is longer: a first step also pays for what is done once, such as "
                 "touching memory and loading kernels, in parts that are not told apart here. ");
}

Text warm_up(const Evidence& e) {
  const Row cold = e.row("warmup", {{"warmup", 0}, {"status", "ok"}});
  // All of one cell: the table may have more.
  const Evidence::Where same_cell = {
      {"size", cold.text("size")}, {"mode", cold.text("mode")}, {"status", "ok"}};
  const Row warm = e.largest("warmup", same_cell, "warmup");
  require(warm.whole("warmup") > 0, "the starts were all measured without warm-up steps");
  const Quantity first = cold.get("first_ms"),
                 settled = plus_minus(warm.get("median_ms"), warm.get("std_ms"));
  const Text percent_text = percent(Quantity::constant(10));
  const Text settles =
      say("{}: without warm-up the first timed step takes {}, {} times the {} "
          "that steps take behind {} others. ",
          {warm.name(), duration(first), decimal(first / settled), duration(settled),
           whole(warm.get("warmup"))});
  const auto mean = [](const Row& row) {
    return say("{} ± {}", {duration(row.get("mean_ms")), duration(row.get("std_ms"))});
  };
  const Text costs =
      compare_with_range(first / settled, 0.9, 1.1)
          .say({.less = "The first step is not the long one: this device shows no cost of a start, "
                        "or the machine was not quiet. ",
                .equal = Text("That is within ") + percent_text +
                         say(": an effect of warm-up inside that bound is possible. The first two "
                             "steps timed behind those others took {} and {}. ",
                             {duration(warm.get("first_ms")), duration(warm.get("second_ms"))}),
                .unclear = "Noise hides what a start costs. ",
                .more = say("That is longer: without warm-up mean and deviation are {} instead of "
                            "{}. ",
                            {mean(cold), mean(warm)})});
  const std::vector<Row> rows = e.rows("warmup", same_cell);
  const Quantity unsettled = most_of(rows, "unsettled");
  std::vector<Text> leading;
  for (const Row& row : rows) leading.push_back(whole(row.get("unsettled")));
  return settles + costs + first_steps(rows, settled) +
         compare(unsettled, Quantity::constant(0))
             .say({.equal = Text("None of the processes starts with a step that is ") +
                            percent_text +
                            " over those at its end, so how many warm-up steps are enough does "
                            "not show.",
                   .more = say(
                       "Steps at the start of each process that lie {} or more above those "
                       "at its end: {}; {} would have left them out, for this "
                       "cell.",
                       {percent_text, join(leading, ", "), counted(unsettled, "warm-up step")})});
}

Text validity(const Evidence& e) {
  const std::vector<Row> rows = e.rows("validity");
  std::set<std::string> verdicts;
  for (const Row& row : rows) verdicts.insert(row.text("verdict"));
  Quantity sound = Quantity::constant(0);
  Text doubts;
  for (const std::string& verdict : verdicts) {
    const Quantity count = count_of(rows, "verdict", verdict);
    if (verdict == "ok" || verdict.starts_with("note")) {
      sound = sound + count;
      continue;
    }
    const Row first = e.row("validity", {{"verdict", verdict}});
    doubts +=
        say(count.value > 1 ? "{} with {} (such as {} in the table {}). "
                            : "{} with {} ({} in the table {}). ",
            {whole(count), first.quote("verdict"), first.quote("cell"), first.quote("table")});
  }
  const Quantity all = count_of(rows, "verdict");
  return say("{} of the {} rows in the table validity stand without a doubt of the validity "
             "checker. {}",
             {whole(sound), whole(all), doubts}) +
         compare(sound, all)
             .say({.less = "Not every time is beyond doubt: read those with "
                           "the reasons in the table.",
                   .equal = "Every time among them is what its label says."}) +
         beside_validity(e);
}

// Time grows about as the work does where its growth over that of the work lies between these.
constexpr double kLeastGrowth = 0.8, kMostGrowth = 1.25;

Relation beside_work(const Quantity& growth) {
  return compare_with_range(growth, kLeastGrowth, kMostGrowth);
}

Text range_of_growth(const Quantity& growth) {
  return say("; growth of time over growth of work is {}, held against the range from {} to {}.",
             {decimal(growth), decimal(Quantity::constant(kLeastGrowth)),
              decimal(Quantity::constant(kMostGrowth))});
}

// How work and time grow from each size to the next one, where there are three and more.
Text each_growth(const Evidence& e, std::vector<Row> rows) {
  if (rows.size() < 3) return {};
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.get("flops").value; });
  Text out;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Row &from = rows[i - 1], &to = rows[i];
    const bool have_one_vocabulary = from.whole("vocab") == to.whole("vocab");
    const Quantity work = to.get("flops") / from.get("flops"),
                   time = median_anywhere(e, to) / median_anywhere(e, from);
    out += say(" From {} to {}{} a pass has {} times the FLOPs in {} times the time, {} of that{}.",
               {from.quote("size"), to.quote("size"),
                have_one_vocabulary ? Text()
                                    : say(" (vocabulary {}, then {})",
                                          {whole(from.get("vocab")), whole(to.get("vocab"))}),
                decimal(work, 1), decimal(time, 1), decimal(time / work),
                beside_work(time / work)
                    .say({.less = say(", below {}", {decimal(Quantity::constant(kLeastGrowth))}),
                          .more = say(", above {}", {decimal(Quantity::constant(kMostGrowth))})})});
  }
  return out;
}

Text sizes(const Evidence& e) {
  const Evidence::Where kForward = {{"mode", "forward"}, {"ops", "fused"}, {"status", "ok"}};
  const Row large = e.largest("cells", kForward, "flops");
  const std::vector<Row> all = e.rows("cells", kForward);
  std::optional<Row> small;
  for (const Row& row : all) {
    if (row.text("size") != large.text("size")) small = row;
  }
  require(small.has_value(), "only one size was timed");
  const auto layers = [&](const Row& row) {
    return e.row("sizes", {{"size", row.text("size")}}).get("layers");
  };
  const Quantity large_ms = median_anywhere(e, large), small_ms = median_anywhere(e, *small),
                 time = large_ms / small_ms, work = large.get("flops") / small->get("flops"),
                 layer = (large_ms / layers(large)) / (small_ms / layers(*small)),
                 layer_work =
                     (large.get("flops") / layers(large)) / (small->get("flops") / layers(*small));
  Text out =
      say("From {} to {} a forward pass has {} times the FLOPs and takes {} times as long; "
          "by layer, with embedding and head in it, {} times the FLOPs and {} times as long. ",
          {small->name(), large.name(), decimal(work, 1), decimal(time, 1), decimal(layer_work),
           decimal(layer)});
  const Relation flat = compare_with_range(layer, 0, 1.15),
                 harder = compare(work, Quantity::constant(2));
  if (flat.is(Ordering::kEqual) && harder.is(Ordering::kMore)) {
    return out +
           because(both(flat, harder),
                   "Time per layer does not grow with its work, as where launching kernels "
                   "takes the time: neither time says what the device can compute.") +
           each_growth(e, all);
  }
  return out +
         beside_work(time / work)
             .say({.less = "Between these sizes time grows by less than the work",
                   .equal = "Between these sizes time grows about as the work does",
                   .unclear = "Noise leaves open whether time grows as the work does",
                   .more = "Between these sizes time grows by more than the work"}) +
         range_of_growth(time / work) + at_other_times(e, *small, "the first") +
         at_other_times(e, large, "the other") + each_growth(e, all);
}

// Whether the checker has no doubt of a row's time.
bool is_sound(const Row& row) {
  const std::string verdict = row.text_or("verdict", "ok");
  return !verdict.starts_with("doubt") && !verdict.starts_with("invalid");
}

// A step over more tokens takes longer; where it does not, the rows do not show how time grows.
void require_growth(const std::vector<Row>& rows) {
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const Quantity before = median_in(rows[i - 1], "samples_ms"),
                   after = median_in(rows[i], "samples_ms");
    const Relation order = compare(after, before);
    require(!order.is(Ordering::kLess),
            say("a step over {} tokens ({}) is {} one over {} ({}), which work cannot explain",
                {whole(rows[i].get("context")), duration(after), because(order, "shorter than"),
                 whole(rows[i - 1].get("context")), duration(before)}));
  }
}

// The times that steps over these contexts took in other tables.
Text other_times_of(const Evidence& e, std::initializer_list<Row> rows) {
  Text out;
  for (const Row& row : rows) {
    const Text name = say("the step over {}", {whole(row.get("context"))});
    out += at_other_times(e, row, name);
  }
  return out;
}

Text contexts(const Evidence& e) {
  const Row last = e.largest("scaling", {{"mode", "step"}, {"status", "ok"}}, "context");
  std::vector<Row> rows;
  for (const Row& row : e.rows("scaling", {{"mode", "step"}, {"status", "ok"}})) {
    if (row.text("size") == last.text("size") && row.whole("batch") == last.whole("batch")) {
      rows.push_back(row);
    }
  }
  std::ranges::sort(rows, {}, [](const Row& row) { return row.whole("context"); });
  require(rows.size() >= 3, "there are no three contexts");
  require_growth(rows);
  const Row &first = rows.front(), &before = rows[rows.size() - 2];
  const auto ratio = [&](const Row& from) {
    return median_anywhere(e, last) / median_anywhere(e, from);
  };
  const auto tokens = [&](const Row& from) { return last.get("context") / from.get("context"); };
  require(before.whole("context") < last.whole("context") && first.whole("context") > 0,
          "the contexts do not differ");
  const Quantity work = last.get("flops") / first.get("flops"), time = ratio(first),
                 power = log(time) / log(tokens(first)),
                 power_of_work = log(work) / log(tokens(first));
  // Reasons are given only for times that nothing speaks against.
  const bool are_sound = is_sound(first) && is_sound(last);
  const auto because_of = [&](const char* why) { return Text(are_sound ? why : ""); };
  return say("{}, batch {}: from {} to {} tokens, the ends of {} contexts, the time of a step "
             "grows "
             "like T^{} and its FLOPs like T^{}. ",
             {last.model(), whole(last.get("batch")), whole(first.get("context")),
              whole(last.get("context")), whole(count_of(rows, "context")), decimal(power),
              decimal(power_of_work)}) +
         beside_work(time / work)
             .say({.less = Text("Time grows by less than the work") +
                           because_of(", as short contexts use the device less well"),
                   .equal = "Time grows about as the work does",
                   .unclear = "Noise leaves open whether time grows as the work does",
                   .more = Text("Time grows by more than the work") +
                           because_of(", as what is no matrix product takes part")}) +
         range_of_growth(time / work) +
         say(" From {} to {} tokens alone it takes {} times the time, with {} times the FLOPs.",
             {whole(before.get("context")), whole(last.get("context")), decimal(ratio(before)),
              decimal(last.get("flops") / before.get("flops"))}) +
         other_times_of(e, {first, before, last});
}

// Whether the study has the cells of this comparison at other times as well, and they disagree.
bool is_disputed(const Row& row) {
  const std::string verdict = row.text_or("verdict", "ok");
  return verdict.starts_with("invalid") || verdict.find(kMeasuredApart) != std::string::npos;
}

// The other models, whatever their samples tell.
Text fused_of_others(const Evidence& e, const Row& main) {
  std::vector<Text> list;
  for (const Row& row : e.rows("granularity", {{"mode", "step"}})) {
    if (row.text("size") == main.text("size")) continue;
    list.push_back(
        say("{} {} ({}{})", {row.model(), decimal(row.get("ratio")), row.quote("change"),
                             is_disputed(row) ? say("; {}", {row.quote("verdict")}) : Text()}));
  }
  return list.empty() ? Text() : say(" Fused over primitive for others: {}.", {join(list, ", ")});
}

// Whether a comparison says that two times are within the margin of each other.
bool is_same(const std::string& change) {
  return change == "same" || change.starts_with("slightly ");
}

// About the slowest model whose samples show that fused and primitive differ, or are the same.
Text fused(const Evidence& e) {
  const Row slowest = e.largest("granularity", {{"mode", "step"}}, "primitive_ms");
  std::optional<Row> clear;
  for (const Row& row : e.rows("granularity", {{"mode", "step"}})) {
    const std::string change = row.text("change");
    const bool is_known = is_same(change) || change == "faster" || change == "slower";
    const bool is_clear = is_known && row.has("low") && row.has("high");
    if (!is_clear || is_disputed(row)) continue;
    if (!clear || row.get("primitive_ms").value > clear->get("primitive_ms").value) clear = row;
  }
  require(
      clear.has_value() || !is_disputed(slowest),
      say("the steps of {} took another time elsewhere in this study, and the checker's verdict "
          "on them is {}",
          {slowest.model(), slowest.quote("verdict")}));
  require(clear.has_value(),
          say("for {} these samples do not tell a ratio of {} from chance ({}; an "
              "interval takes six of each)",
              {slowest.model(), decimal(slowest.get("ratio"), 3), probability(slowest.get("p"))}));
  const Row& row = *clear;
  const Quantity ratio = between(row.get("ratio"), row.get("low"), row.get("high"));
  const Relation change = compare(ratio, Quantity::constant(1));
  const bool are_same = is_same(row.text("change"));
  require(are_same || change.is(row.text("change") == "faster" ? Ordering::kLess : Ordering::kMore),
          say("the comparison \"{}\" is not what the interval of the ratio says, {} to {}",
              {row.quote("change"), decimal(row.get("low"), 3), decimal(row.get("high"), 3)}));
  const Relation small = compare_with_range(ratio, 0.98, 1.02);
  require(!are_same || small.is(Ordering::kEqual),
          "the row calls both times alike, which the interval of their ratio does not say");
  const Text reading = are_same
                           ? because(small, "no difference that matters")
                           : change.say({.less = "fused is faster", .more = "fused is slower"});
  const auto samples = [&](const char* ops) {
    return whole(count_in(
        e.row("cells",
              {{"size", row.text("size")}, {"mode", "step"}, {"ops", ops}, {"status", "ok"}}),
        "samples_ms"));
  };
  return say(
      "{}: a step takes {} with one kernel per composite (median of {}) and {} in primitive "
      "ops (of {}), AdamW's among them: {} ({} times the time; {} by Mann and "
      "Whitney's test of these samples, which were taken one cell after the other). The peak is {} "
      "with fused kernels and {} in primitive ops.{}",
      {row.model(), duration(row.get("fused_ms")), samples("fused"),
       duration(row.get("primitive_ms")), samples("primitive"), reading, decimal(ratio),
       probability(row.get("p")), bytes(row.get("fused_peak_bytes")),
       bytes(row.get("primitive_peak_bytes")), fused_of_others(e, row)});
}

constexpr Question kQuestions[] = {
    {"pass-times", "Time",
     "How long do forward, backward and optimizer take, and how steady is it?",
     "tracestep bench --size small --mode forward,forward-backward,step", pass_times},
    {"warm-up", "Time", "What do warm-up steps leave out, and how many are enough?",
     "tracestep bench --warmup-study 0,1,2,5 --steps 5", warm_up},
    {"validity", "Time", "Is every time what its label says?", "tracestep study", validity},
    {"sizes", "Time", "Does the time of a pass grow with the work from size to size?",
     "tracestep bench --size small,medium --mode forward", sizes},
    {"contexts", "Time", "How does the time of a step grow with the context?",
     "tracestep bench --size small --context 128,256,512,1024 --mode step", contexts},
    {"fused", "Time", "What do fused kernels save against primitive ops?",
     "tracestep bench --size small --ops fused,primitive --mode step", fused},
};

}  // namespace

std::span<const Question> time_questions() {
  return kQuestions;
}

}  // namespace tracestep
