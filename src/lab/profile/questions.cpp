// Questions that a profile answers: clocks, kernels, matrix products, softmax, rooflines.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "lab/measure/elsewhere.h"
#include "lab/measure/left_of_span.h"
#include "lab/measure/validity_recorded.h"
#include "lab/profile/roof_answer.h"
#include "lab/profile/shares.h"
#include "lab/profile/tables.h"
#include "lab/report/question.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// The profiled cell with the most work, whose label names its own tables.
Row main_pass(const Evidence& e, const char* mode, const char* pass = "all") {
  return e.largest("passes", {{"mode", mode}, {"pass", pass}, {"status", "ok"}}, "ms");
}

std::string label(const Row& row) {
  return row.text("label");
}

Text named(const Row& row) {
  return row.name();
}

// Shares are read from recorded steps that agree with each other and with the plain ones.
void require_shares(const Row& row) {
  require(!doubts_shares(row.text_or("verdict", "ok")),
          say("the validity checker's verdict on the recorded steps of {} is {}",
              {named(row), row.quote("verdict")}));
}

Row shares_of_step(const Evidence& e) {
  const Row out = main_pass(e, "step");
  require_shares(out);
  return out;
}

// The profiled steps beside the one that an answer is about, whose shares can be read.
std::vector<Row> other_steps(const Evidence& e, const Row& main) {
  std::vector<Row> out;
  for (const Row& row : e.rows("passes", {{"mode", "step"}, {"pass", "all"}, {"status", "ok"}})) {
    if (!doubts_shares(row.text_or("verdict", "ok")) && label(row) != label(main))
      out.push_back(row);
  }
  return out;
}

// What the other profiled cells show; empty where there are none.
Text others_too(const std::vector<Text>& list) {
  return list.empty() ? Text() : say(" Other cells: {}.", {join(list, "; ")});
}

// How much longer recorded steps are than plain ones, in percent.
Quantity recording_cost(const Row& clock) {
  const Quantity wall = clock.get("plain_wall_ms");
  return share_of(clock.get("wall_ms") - wall, wall);
}

Text clocks_of_others(const Evidence& e, const Row& main) {
  std::vector<Text> list;
  for (const Row& row : e.rows("clocks")) {
    if (label(row) == label(main) || !row.has("plain_wall_ms") || !row.has("busy_ms")) continue;
    const Quantity cost = recording_cost(row);
    list.push_back(say(
        "{} {} by the wall clock, {} of kernels in recorded steps, whose wall time is off by {}",
        {named(row), duration(row.get("plain_wall_ms")), duration(row.get("busy_ms")),
         signed_percent(cost)}));
  }
  return others_too(list);
}

LeftOfSpan left_of_span(const Row& clock) {
  return {clock.get("plain_span_ms"), clock.get("span_ms"), clock.get("recorded_gaps_ms"),
          clock.get("interrupted_ms")};
}

Text clocks(const Evidence& e) {
  const Row row = e.largest("clocks", {{"mode", "step"}}, "plain_wall_ms");
  const Quantity wall = row.get("plain_wall_ms"), busy = row.get("busy_ms"),
                 cost = recording_cost(row), share = share_of(busy, wall);
  Text out =
      say("{}: a step that nobody records takes {} by the wall clock and {} from the first "
          "kernel's start to the last one's end; in steps recorded by the {} kernels run for {}. ",
          {named(row), duration(wall), duration(row.get("plain_span_ms")), row.quote("recorded_by"),
           duration(busy)});
  if (const auto gaps = row.get_if("gaps_ms")) {
    out += compare(*gaps, Quantity::constant(0))
               .say({.more = say("That leaves {} of the span: {}. ",
                                 {duration(*gaps), left_of_span(row).parts()})});
  }
  const Relation fits = compare_with_range(share, 0, 101);
  if (!fits.is(Ordering::kEqual)) {
    return out + say("Kernels would be {} of the wall, {}: the two were not measured on one "
                     "quiet machine, and cannot be compared.",
                     {percent(share), because(fits, "more than there is")});
  }
  out += say("Kernels are {} of the wall. ", {percent(share)});
  return out +
         compare_with_range(cost, -100 * kRecordedNoise, 100 * kRecordedNoise)
             .say({.less =
                       say("Recorded steps came out shorter than plain ones, by {}: the two were "
                           "not of like steps, and the two clocks cannot be compared.",
                           {percent(-1.0 * cost)}),
                   .equal = say(
                       "The wall time of recorded steps is off by {}, and up to {} count as "
                       "agreement here: the profile is of a step like the plain ones.",
                       {signed_percent(cost), percent(Quantity::constant(100 * kRecordedNoise))}),
                   .unclear = "Whether recording costs time cannot be told.",
                   .more = say("Recorded steps take longer than plain ones, by {}, so a profile's "
                               "wall time is not the step's time.",
                               {percent(cost)})}) +
         at_other_times(e, row, "the step") + clocks_of_others(e, row);
}

Text top_kernel(const Evidence& e) {
  const Row all = shares_of_step(e);
  const Row forward = e.beside(all, {{"pass", "forward"}}),
            backward = e.beside(all, {{"pass", "backward"}});
  const auto top = [](const Row& row) {
    return say(
        "{} takes {} of the kernels' time in {} launches",
        {row.quote("top_kernel"), percent(row.get("top_percent")), whole(row.get("top_launches"))});
  };
  const bool is_same = forward.text("top_kernel") == backward.text("top_kernel");
  const Relation relation = compare_texts(forward, backward, "top_kernel");
  return say("{}, each share of its own pass: in forward {}; in backward {}. {}",
             {named(all), top(forward), top(backward),
              because(relation,
                      is_same ? "It is the same kernel in both." : "They are different kernels.")});
}

Text other_kernels(const Evidence& e) {
  constexpr std::size_t kShown = 4;
  const Row all = shares_of_step(e);
  std::vector<Row> kinds;
  for (const Row& row : e.rows("kinds@" + label(all))) {
    if (row.get("share_percent").value > 0) kinds.push_back(row);
  }
  require(!kinds.empty(), "no other kernel takes time");
  std::ranges::stable_sort(kinds, std::greater{},
                           [](const Row& row) { return row.get("share_percent").value; });
  const Relation first = leads(kinds.front(), kinds, "share_percent");
  kinds.resize(std::min(kShown, kinds.size()), kinds.front());
  std::vector<Text> list;
  for (const Row& row : kinds) {
    list.push_back(say("{} ({}, {})",
                       {row.quote("op"), row.quote("class"), percent(row.get("share_percent"))}));
  }
  const Quantity products = all.get("products_percent"),
                 others = Quantity::constant(100) - products;
  return say("{}: kernels that multiply no matrices take {} of the kernels' time. {} {}: {} "
             "together. ",
             {named(all), percent(others), because(first, "In order, the longest first:"),
              join(list, ", "), percent(sum_of(kinds, "share_percent"))}) +
         compare(noisy(products), noisy(others))
             .say({.less = "The matrix products take less.",
                   .equal = "The matrix products take as much.",
                   .unclear = "The matrix products' part is not apart from that beyond noise.",
                   .more = "The matrix products take more."});
}

Text shares_of_others(const Evidence& e, const Row& main) {
  std::vector<Text> list;
  for (const Row& step : other_steps(e, main)) {
    const auto inference = e.find("passes", {{"size", step.text("size")},
                                             {"context", step.whole("context")},
                                             {"ops", step.text("ops")},
                                             {"mode", "inference"},
                                             {"pass", "all"},
                                             {"status", "ok"}});
    if (!inference) continue;
    list.push_back(say("{} at context {} ({}) {} in inference and {} in a step",
                       {step.model(), whole(step.get("context")), step.quote("ops"),
                        percent(share_of(inference->get("products_ms"), inference->get("ms"))),
                        percent(share_of(step.get("products_ms"), step.get("ms")))}));
  }
  return others_too(list);
}

Quantity others_of(const Row& pass) {
  return pass.get("ms") - pass.get("products_ms");
}

// How far two recordings of the same kernels lie apart: those of forward in inference and in a
// step. Not below a hundredth, since two may agree by chance.
Quantity noise_of_recordings(const Row& inference, const Row& forward) {
  const Quantity one = Quantity::constant(1);
  Quantity most = Quantity::constant(0.01);
  for (const Quantity& off : {forward.get("products_ms") / inference.get("products_ms") - one,
                              others_of(forward) / others_of(inference) - one}) {
    if (std::abs(off.value) > std::abs(most.value)) most = off;
  }
  return most;
}

// What is true of the products' share without the optimizer's kernels.
Text share_without_optimizer(const Relation& beside, const Quantity& others,
                             const Quantity& share) {
  return beside.say({.less = "Without AdamW, too, the others grow more. ",
                     .unclear = "Without AdamW the two factors are not apart beyond noise. ",
                     .more = say("Without AdamW the others grow less, {} times: it is AdamW that "
                                 "lowers the products' share, which would be {}. ",
                                 {decimal(others), percent(share)})});
}

// That the cell's tables by component and by class are of another instrument, where they are.
Text by_another_instrument(const Evidence& e, const Row& step) {
  for (const Row& cell : e.same_cell(step, "cells")) {
    for (const Row& clocks : e.same_cell(step, "clocks")) {
      if (!cell.has("recorded_by") || !clocks.has("recorded_by")) continue;
      if (cell.text("recorded_by") == clocks.text("recorded_by")) continue;
      return say(
          "These are shares of kernels' times by {}; the tables of time by component and by class "
          "have theirs by {}, from other recorded steps. ",
          {clocks.quote("recorded_by"), cell.quote("recorded_by")});
    }
  }
  return {};
}

Text product_share(const Evidence& e) {
  const Row step = shares_of_step(e);
  const Row inference = e.beside(step, {{"mode", "inference"}, {"pass", "all"}});
  require_shares(inference);
  const Quantity before = share_of(inference.get("products_ms"), inference.get("ms")),
                 after = share_of(step.get("products_ms"), step.get("ms"));
  const Quantity noise = noise_of_recordings(inference, e.beside(step, {{"pass", "forward"}}));
  const auto growth = [&](const Quantity& to, const Quantity& from) {
    return plus_minus(to / from, noise * (to / from));
  };
  const Quantity products = growth(step.get("products_ms"), inference.get("products_ms"));
  const Quantity others = growth(others_of(step), others_of(inference));
  const Row optimizer = e.beside(step, {{"pass", "optimizer"}});
  const Quantity others_before = others_of(step) - others_of(optimizer),
                 without = growth(others_before, others_of(inference));
  return say("{}: matrix products take {} of the kernels' time in inference and {} in a training "
             "step. They take {} times as long in the step, and all other kernels {} times; AdamW "
             "alone takes {} of the time of the step's kernels. ",
             {named(step), percent(before), percent(after), decimal(products), decimal(others),
              percent(share_of(optimizer.get("ms"), step.get("ms")))}) +
         by_another_instrument(e, step) +
         compare(products, others)
             .say({.less = Text("So their share falls, because the others grow more. ") +
                           share_without_optimizer(compare(products, without), without,
                                                   share_of(step.get("products_ms"),
                                                            step.get("ms") - optimizer.get("ms"))),
                   .equal = "Both grow alike. ",
                   .unclear = "The two factors are not apart beyond noise, so neither is their "
                              "share. ",
                   .more = "So their share rises, because the others grow less. "}) +
         compare_with_range(products, 2.5, 3.5)
             .say({.less = "For products, with backward's beside forward's, that is below three "
                           "times, which their FLOPs alone would give.",
                   .equal = "For products that is about three times, as backward has two for each "
                            "of forward.",
                   .unclear = "For products, noise leaves open whether that is three times, which "
                              "their FLOPs alone would give.",
                   .more = "For products that is above three times, which their FLOPs alone would "
                           "give."}) +
         shares_of_others(e, step);
}

Text softmax_of_others(const Evidence& e, const Row& main) {
  std::vector<Text> list;
  for (const Row& step : other_steps(e, main)) {
    const auto row = e.find("attention@" + label(step),
                            {{"phase", "forward"}, {"part", "softmax, with scale and mask"}});
    if (!row) continue;
    list.push_back(say("{} {} of the time, {} of the FLOPs",
                       {named(step), percent(row->get("ms_of_products_percent")),
                        percent(row->get("flops_of_products_percent"))}));
  }
  return others_too(list);
}

// How much of the bandwidth softmax reaches, where bytes are its bound: whether they set its time.
Text softmax_roof(const Row& row, bool is_one_kernel) {
  if (row.text_or("bound", "") != "bytes") return {};
  const auto part = row.get_if("roof_percent");
  if (!part) return {};
  const Quantity enough = Quantity::constant(60), whole_time = Quantity::constant(100);
  const Relation reached = compare(*part, enough), beyond = compare(*part, whole_time);
  if (beyond.is(Ordering::kMore)) {
    return say(
        " At the measured rate of copies its bytes would take {} of its time, {} {}: moving them "
        "sets its time, and that rate is too low for it, or a cache holds some of them{}.",
        {percent(*part), because(beyond, "above"), percent(whole_time),
         is_one_kernel ? ", or a mask hides them" : ""});
  }
  return say(" Its bytes alone would take {} of its time{}.",
             {percent(*part),
              reached.is(Ordering::kLess)
                  ? say(", {} {}: they do not set it", {because(reached, "below"), percent(enough)})
                  : because(reached, ": they set it")});
}

Text softmax(const Evidence& e) {
  const Row all = shares_of_step(e);
  const Row row = e.row("attention@" + label(all),
                        {{"phase", "forward"}, {"part", "softmax, with scale and mask"}});
  const Quantity time = row.get("ms_of_products_percent"),
                 flops = row.get("flops_of_products_percent"),
                 moved = row.get("bytes_of_products_percent");
  return say("{}, forward: softmax with scale and mask takes {} of the time of attention's own "
             "products, with {} of their FLOPs and {} of their bytes. ",
             {named(all), percent(time), percent(flops), percent(moved)}) +
         compare_with_range(time / flops, 0.7, 1.4)
             .say({.less = "Its time is below what its FLOPs would give.",
                   .equal = "Here the time follows the FLOPs.",
                   .more = "Its time is above what its FLOPs would give."}) +
         softmax_roof(row, all.text("ops") == "fused") +
         " The comparison is with attention's products, not with all products of the model." +
         softmax_of_others(e, all);
}

Text launches(const Evidence& e) {
  std::vector<Row> rows = e.rows("launch_check");
  for (const Row& row : rows) {
    if (row.text("verdict") == "ok") continue;
    return say("No: {} of {}: {} ran, {} expected ({}).",
               {row.quote("what"), row.name(), whole(row.get("ran")), whole(row.get("expected")),
                row.quote("verdict")});
  }
  // Rows without a number to meet check nothing.
  std::erase_if(rows, [](const Row& row) { return !row.has("expected"); });
  require(!rows.empty(), "no count was expected");
  const Row all = main_pass(e, "step");
  std::vector<Text> counts;
  for (const Row& row : rows) {
    if (row.text("label") != label(all) || !row.text("what").ends_with("products, forward"))
      continue;
    counts.push_back(
        say("{} {} ({})", {whole(row.get("ran")), row.quote("what"), row.quote("why")}));
  }
  const Relation every = compare(count_of(rows, "verdict", "ok"), count_of(rows, "verdict"));
  return say("{} {} checks that expect a number.",
             {because(every, "Yes, in all"), whole(count_of(rows, "verdict"))}) +
         (counts.empty() ? Text() : say(" {}, one pass: {}.", {named(all), join(counts, "; ")}));
}

Text bound(const Evidence& e) {
  const Row all = shares_of_step(e);
  require(all.text_or("verdict", "ok") != "doubt: above_the_roof",
          say("the roofs of {} are in doubt: {}", {named(all), all.quote("verdict")}));
  return beside_roofs(e, all);
}

// What the kernels leave of the span, and what that is made of by the clocks of the same profile.
Text what_is_left(const Evidence& e, const Row& pass, const std::optional<Quantity>& left) {
  const auto clock = e.find("clocks", {{"label", label(pass)}, {"size", pass.text("size")}});
  if (!left || left->value <= 0 || !clock) return {};
  return say(" What is left are {}: {}.", {duration(*left), left_of_span(*clock).parts()});
}

Text components(const Evidence& e) {
  constexpr std::size_t kShown = 4;
  const Row all = shares_of_step(e);
  std::map<std::string, std::vector<Row>> rows_of;
  std::vector<Row> all_parts;
  std::optional<Quantity> total;
  std::optional<Quantity> left;  // of the span
  for (const Row& row : e.rows("matrix@" + label(all))) {
    const std::string component = row.text("component");
    if (component == "gaps") left = row.get_if("ms");
    if (component == "total") {
      total = row.get("ms");
    } else if (row.has("ms")) {
      rows_of[component.substr(0, component.find('.'))].push_back(row);
      all_parts.push_back(row);
    }
  }
  require(total && total->value > 0 && !all_parts.empty(), "the total of the matrix is missing");
  const Quantity sum = sum_of(all_parts, "ms");
  struct Part {
    Quantity ms;
    Text name;
  };
  std::vector<Part> parts;
  for (const auto& [name, rows] : rows_of) {
    parts.push_back({sum_of(rows, "ms"),
                     name == "gaps"
                         ? Text("what is left")
                         : Text(Piece{name, Basis::kQuote, rows.front().formula("component")})});
  }
  const Relation adds_up = compare_with_range(sum / *total, 0.999, 1.001);
  require(!adds_up.is(Ordering::kLess),
          say("the parts add up to {} of the step", {percent(share_of(sum, *total))}));
  const bool is_longer = adds_up.is(Ordering::kMore);  // the recorded kernels than the plain span
  std::ranges::stable_sort(parts, std::greater{}, [](const Part& p) { return p.ms.value; });
  parts.resize(std::min(kShown, parts.size()));
  std::vector<Text> list;
  for (const Part& part : parts) {
    list.push_back(say("{} {}", {part.name, percent(share_of(part.ms, is_longer ? sum : *total))}));
  }
  Text whole_of;  // no conditional expression: GCC 12 destroys texts that were never made
  if (is_longer) {
    whole_of = say(
        "These are shares of the recorded kernels, {} together, {} that nobody "
        "recorded, {}.",
        {duration(sum), because(adds_up, "which is above the span of steps"), duration(*total)});
  } else {
    whole_of =
        say("{} {}.{}",
            {because(adds_up, "All parts, with what is left of the span, are equal to the step's"),
             duration(*total), what_is_left(e, all, left)});
  }
  return say("{}: {}. AdamW's kernels count with the part whose weights they change. ",
             {named(all), join(list, ", ")}) +
         whole_of;
}

constexpr Question kQuestions[] = {
    {"clocks", "Kernels", "How does the profiler's time compare with the wall clock?",
     "tracestep profile --size small --mode step", clocks},
    {"components", "Kernels", "Which part of the model takes the time of a step?",
     "tracestep profile --size small --mode step", components},
    {"top-kernel", "Kernels",
     "Which kernel takes most time in forward, how often does it run, and is it the same in "
     "backward?",
     "tracestep profile --size small --mode step", top_kernel},
    {"other-kernels", "Kernels", "Which kernels beside matrix products take time?",
     "tracestep profile --size small --mode step", other_kernels},
    {"product-share", "Kernels",
     "How does the share of matrix products change from inference to a training step?",
     "tracestep profile --size small --mode inference,step", product_share},
    {"softmax", "Kernels",
     "How does softmax compare with attention's matrix products in time and in FLOPs?",
     "tracestep profile --size small --mode step --components attention", softmax},
    {"launches", "Kernels", "Did the kernels run that the model says must run?",
     "tracestep profile --size small --mode inference,step", launches},
    {"bound", "Kernels", "What bounds the step: moving bytes or arithmetic?",
     "tracestep profile --size small --mode step", bound},
};

}  // namespace

std::span<const Question> profile_questions() {
  return kQuestions;
}

}  // namespace tracestep
