// Questions about attention alone.
#include <algorithm>
#include <cmath>

#include "lab/attention/tables.h"
#include "lab/measure/noise.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

const Evidence::Where kPlain = {{"saved", "weights"}, {"status", "ok"}};

// The naive cell with the longest context and, among those, the widest heads.
Row longest(const Evidence& e) {
  const std::int64_t context = e.largest("attention", kPlain, "context").whole("context");
  Evidence::Where where = kPlain;
  where.emplace_back("context", context);
  return e.largest("attention", where, "width");
}

Quantity forward_of(const Row& row) {
  return median_in(row, "forward_samples_ms");
}
Quantity backward_of(const Row& row) {
  return median_in(row, "backward_samples_ms");
}

Text times(const Evidence& e) {
  const Row last = longest(e);
  std::vector<Text> list;
  for (const Row& row :
       e.rows("attention",
              {{"saved", "weights"}, {"status", "ok"}, {"context", last.whole("context")}})) {
    list.push_back(say("width {}: {} and {}, {} times as long",
                       {whole(row.get("width")), duration(forward_of(row)),
                        duration(backward_of(row)), decimal(backward_of(row) / forward_of(row))}));
  }
  const Row half = e.row("attention", {{"saved", "weights"},
                                       {"status", "ok"},
                                       {"width", last.whole("width")},
                                       {"context", last.whole("context") / 2}});
  const Quantity growth = forward_of(last) / forward_of(half);
  constexpr double kLeastGrowth = 3.5, kMostGrowth = 4.5;  // about four
  // A reason is given only for times that nothing speaks against.
  const auto is_sound = [](const Row& row) {
    const std::string verdict = row.text_or("verdict", "ok");
    return !verdict.starts_with("doubt") && !verdict.starts_with("invalid");
  };
  const bool are_sound = is_sound(last) && is_sound(half);
  return say("Batch {}, context {}, forward and backward apart: {}. From context {} to {}, at "
             "width "
             "{}, forward takes {} times as long. ",
             {whole(last.get("batch")), whole(last.get("context")), join(list, "; "),
              whole(half.get("context")), whole(last.get("context")), whole(last.get("width")),
              decimal(growth)}) +
         compare_with_range(growth, kLeastGrowth, kMostGrowth)
             .say({.less = say("That is less than T² work would take{}.",
                               {are_sound ? ": something else still counts" : ""}),
                   .equal = "That is about four times, as T² work would take.",
                   .unclear = "Noise leaves open whether that is the four times of T² work.",
                   .more = "That is more than the four times of T² work."}) +
         say(" From {} to {} count as that here.", {decimal(Quantity::constant(kLeastGrowth), 1),
                                                    decimal(Quantity::constant(kMostGrowth), 1)});
}

Text growth(const Evidence& e) {
  std::vector<Text> list;
  for (const Row& row : e.rows("attention_scaling", {{"saved", "weights"}})) {
    const Quantity error = row.get("largest_error_percent"), tensors = row.get("tensors");
    const Relation close = compare_with_range(error, 0, 1);
    require(close.is(Ordering::kEqual), say("a·T² + b·T + c misses the bytes at width {} by {}",
                                            {whole(row.get("width")), percent(error)}));
    const double nearest = std::round(tensors.value);
    list.push_back(say(
        "at width {} they fit {} bytes per T² ({} tensors of B·T²{})",
        {whole(row.get("width")), decimal(row.get("bytes_per_t2")), decimal(tensors),
         compare_with_range(tensors, nearest - 0.05, nearest + 0.05)
             .say({.less = ", which is no whole number", .more = ", which is no whole number"})}));
  }
  const Row last = longest(e);
  return say("Bytes before backward: {}. At context {} and width {} they are {}; the peak is {}.",
             {join(list, "; "), whole(last.get("context")), whole(last.get("width")),
              bytes(last.get("before_backward_bytes")), bytes(last.get("peak_bytes"))});
}

Text variants(const Evidence& e) {
  std::vector<Text> list;
  std::vector<Row> rows;
  for (const char* saved : {"weights", "scores+weights", "scores+exp+weights"}) {
    rows.push_back(e.row("attention_scaling", {{"saved", saved}, {"precision", "fp32"}}));
    list.push_back(
        say("{}: {}", {rows.back().quote("saved"), decimal(rows.back().get("tensors"))}));
  }
  const auto step = [&](std::size_t i) {
    return compare_with_range(rows[i].get("tensors") - rows[i - 1].get("tensors"), 0.75, 1.25);
  };
  const Row most =
      e.largest("attention", {{"saved", "scores+exp+weights"}, {"status", "ok"}}, "context");
  std::vector<Text> times;
  std::vector<Row> cells;
  const auto nodes_of = [](const Row& row) {
    return row.get("forward_launches") + row.get("backward_launches");
  };
  for (const Row& row : rows) {
    const Row cell = e.row("attention", {{"saved", row.text("saved")},
                                         {"status", "ok"},
                                         {"width", most.whole("width")},
                                         {"context", most.whole("context")}});
    times.push_back(
        say("{} {} and {} in {} launching nodes, {} at the peak",
            {cell.quote("saved"), duration(forward_of(cell)), duration(backward_of(cell)),
             whole(nodes_of(cell)), bytes(cell.get("peak_bytes"))}));
    cells.push_back(cell);
  }
  const Text in_parts =
      compare(nodes_of(cells[2]), nodes_of(cells[1]))
          .say({.more = " The last has more of them, since its softmax runs in parts: that costs "
                        "time, whatever is saved."});
  const Relation first = step(1), second = step(2);
  require(first.is(Ordering::kEqual) && second.is(Ordering::kEqual),
          say("the variants do not differ by one tensor each ({})", {join(list, ", ")}));
  return say("Tensors of B·T² alive before backward, by what an implementation keeps: {}. {} "
             "Forward and backward, at context {} and width {}: {}.",
             {join(list, ", "),
              because(both(first, second),
                      "So the bytes alone tell the implementations apart, about one tensor from "
                      "each to the next."),
              whole(most.get("context")), whole(most.get("width")), join(times, "; ")}) +
         in_parts;
}

// The longest context of this width that is predicted to fit, beside one that does not.
Text longest_that_fits(const Evidence& e, const Row& beyond) {
  const Evidence::Where fits = {{"fits", true}, {"width", beyond.whole("width")}};
  if (!e.find("attention_predicted", fits)) return {};
  const Row last = e.largest("attention_predicted", fits, "context");
  const Relation within = compare(last.get("peak_bytes"), last.get("device_bytes"));
  require(within.is(Ordering::kLess), "what is said to fit would not");
  return say(" Context {} needs {}, {}.",
             {whole(last.get("context")), bytes(last.get("peak_bytes")),
              because(within, "less, and fits")});
}

// Which context is predicted not to fit, or that the longest one fits.
Text predicted_limit(const Evidence& e) {
  if (const auto row = e.find("attention_predicted", {{"fits", false}})) {
    const Relation beyond = compare(row->get("peak_bytes"), row->get("device_bytes"));
    require(beyond.is(Ordering::kMore), "what is said not to fit would fit");
    return say("Predicted from the program, context {} at width {} needs {} at the peak, {} {}.",
               {whole(row->get("context")), whole(row->get("width")), bytes(row->get("peak_bytes")),
                because(beyond, "more than this device's"), bytes(row->get("device_bytes"))}) +
           longest_that_fits(e, *row);
  }
  const Row last = e.largest("attention_predicted", {}, "context");
  const Relation within = compare(last.get("peak_bytes"), last.get("device_bytes"));
  require(within.is(Ordering::kLess), "what is said to fit would not");
  return say("Predicted from the program, context {} still fits: it needs {}, {} {}.",
             {whole(last.get("context")), bytes(last.get("peak_bytes")),
              because(within, "less than this device's"), bytes(last.get("device_bytes"))});
}

Text out_of_memory(const Evidence& e) {
  const std::vector<Row> all = e.rows("attention", {{"saved", "weights"}});
  const Quantity failed = count_of(all, "status", "oom"), cells = count_of(all, "status");
  const auto first = e.find("attention", {{"saved", "weights"}, {"status", "oom"}});
  const Relation any = compare(failed, Quantity::constant(0));
  Text out = any.say(
      {.equal = say("None of the {} cells that save the weights alone ran out of memory. ",
                    {whole(cells)}),
       .more = first ? say("{} of {} cells ran out of memory, such as width {}, context {}. ",
                           {whole(failed), whole(cells), whole(first->get("width")),
                            whole(first->get("context"))})
                     : Text()});
  return out + predicted_limit(e);
}

// "1.54 times as fast": how the second time compares with the first.
Text pace(const Quantity& before, const Quantity& after) {
  return compare(after, before)
      .say({.less = say("{} times as fast", {decimal(before / after)}),
            .equal = "as fast",
            .unclear = "not apart from it beyond noise",
            .more = say("slower, by {} times", {decimal(after / before)})});
}

// That the device held the second form's clocks back, and not the first one's: which way that moves
// the factors between them.
Text held_back(const Row& before, const Row& after) {
  const auto was_held = [](const Row& row) {
    return row.text_or("verdict", "ok").find("throttled") != std::string::npos;
  };
  if (!was_held(after) || was_held(before)) return {};
  return say(
      " The checker's verdict on the row of the flash form is {}: at full clocks it takes no "
      "additional time, so these factors may be too small.",
      {after.quote("verdict")});
}

Text removes(const Evidence& e) {
  const Row last = longest(e);
  require(last.text("attention") == "naive", "the row of the plain form is of another one");
  const Quantity held = last.get("before_backward_bytes"), square = last.get("saved_bytes");
  const Row flash = e.row("attention", {{"attention", "flash"},
                                        {"status", "ok"},
                                        {"context", last.whole("context")},
                                        {"width", last.whole("width")}});
  const auto share = [&](const char* flops) {
    return percent(100.0 * flash.get(flops) / last.get(flops));
  };
  return say("Of the {} before backward at context {}, width {}, {} ({}) are tensors of T²; the "
             "other {} grow with T. ",
             {bytes(held), whole(last.get("context")), whole(last.get("width")), bytes(square),
              percent(100.0 * square / held), bytes(held - square)}) +
         compare(square, held - square)
             .say({.less = "At this size the T² part is not yet the larger one. ",
                   .equal = "Both parts are equal here. ",
                   .more = "An attention that never stores the scores removes the larger part. "}) +
         say("Measured: the flash form, tile by tile, holds {} instead and {} at the peak instead "
             "of {}. Beside the plain form its forward, with nominally {} of the FLOPs, is {}, and "
             "its backward, which computes the scores again and nominally has {} of the FLOPs, is "
             "{}. ",
             {bytes(flash.get("before_backward_bytes")), bytes(flash.get("peak_bytes")),
              bytes(last.get("peak_bytes")), share("forward_flops"),
              pace(forward_of(last), forward_of(flash)), share("backward_flops"),
              pace(backward_of(last), backward_of(flash))}) +
         compare(flash.get("forward_flops"), last.get("forward_flops"))
             .say({.less = "Behind a causal mask it leaves out tiles and has less to compute. "}) +
         "On a GPU the flash form also multiplies float32 in parts of narrow formats, on units "
         "that the plain form does not use. " +
         say("Forward and backward together, without a stop between them: {}.",
             {pace(median_in(last, "whole_samples_ms"), median_in(flash, "whole_samples_ms"))}) +
         held_back(last, flash);
}

constexpr Question kAttention[] = {
    {"attention-times", "Attention",
     "How long do attention's forward and its backward alone take as the context grows?",
     "tracestep attention", times},
    {"attention-bytes", "Attention", "How do attention's bytes grow with the context?",
     "tracestep attention", growth},
    {"attention-variants", "Attention", "What do one, two or three saved tensors of T² cost?",
     "tracestep attention --saved weights,scores+weights,scores+exp+weights", variants},
    {"attention-limit", "Attention", "Where does attention run out of memory?",
     "tracestep attention", out_of_memory},
    {"attention-cure", "Attention", "What would remove the cost?",
     "tracestep attention --attention naive,flash", removes},
};

}  // namespace

std::span<const Question> attention_questions() {
  return kAttention;
}

}  // namespace tracestep
