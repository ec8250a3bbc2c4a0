// Questions that stand apart: training, published tables.
#include <algorithm>
#include <set>

#include "lab/study/answers.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

Text training(const Evidence& e) {
  const bool had_memory = !e.find("parts", {{"part", "training"}, {"status", "out of memory"}});
  require(had_memory, "training ran out of memory");
  const std::vector<Row> rows = e.rows("training");
  require(rows.size() >= 2, "there is one step only");
  const Row& end = rows.back();
  const Quantity first = rows.front().get("loss"), last = loss_at_end(rows);
  Text out =
      say("The loss is {} in the first batch and {} in those at the end, the mean of {} rows "
          "up to step {}. ",
          {decimal(first, 3), decimal(last, 3), whole(count_of(rows_at_end(rows), "loss")),
           whole(end.get("step"))});
  if (const auto validation = end.get_if("validation_loss")) {
    out += say("On text that is not trained on it is {}. ", {decimal(*validation, 3)});
  }
  return out + compare_with_range(last / first, 0.8, 1.0)
                   .say({.less = "It falls clearly: the model learns.",
                         .equal = "It falls little so far, if at all.",
                         .more = "It rises: the model does not learn."});
}

// A write-up's pace that the two devices do not explain, by what their makers say of them. Tables
// of one study may share one pace, which is said of the first.
Text beside_the_peaks(const std::vector<Row>& rows) {
  Text out;
  std::set<std::pair<std::string, double>> said;
  for (const Row& row : rows) {
    if (!row.has("pace") || !row.has("by_low") || !row.has("by_high")) continue;
    if (row.get("agree").value <= 0) continue;
    if (!said.emplace(row.text("study"), row.number("pace")).second) continue;
    const Relation inside =
        compare_with_range(row.get("pace"), row.number("by_low"), row.number("by_high"));
    if (inside.is(Ordering::kEqual)) continue;
    out +=
        say("The pace in study {}, {}, is {}, {} what the peaks of the two devices give, {} to "
            "{}. ",
            {row.quote("study"), row.quote("table"), decimal(row.get("pace")),
             inside.say({.less = "below", .more = "above"}), decimal(row.get("by_low")),
             decimal(row.get("by_high"))});
  }
  return out;
}

// How many different cells were compared, where tables share some, and how many of them name no
// device.
Text cells_compared(const std::vector<Row>& rows) {
  const Quantity compared = sum_of(rows, "compared"), again = sum_of(rows, "compared_again");
  Text out;
  if (again.value > 0) {
    out += say("{} of them of different cells, since tables of a study share some; ",
               {whole(compared - again)});
  }
  std::vector<Row> unknown;
  std::ranges::copy_if(rows, std::back_inserter(unknown), [](const Row& row) {
    return row.text("device") == "not stated" && row.get("compared").value > 0;
  });
  if (unknown.empty()) return out;
  return out + say("{} of a device that is not stated; ", {whole(sum_of(unknown, "compared"))});
}

// What was held against times of this run, and how that came out.
Text held_against_ours(const std::vector<Row>& rows) {
  const Quantity compared = sum_of(rows, "compared"), agree = sum_of(rows, "agree"),
                 nothing = Quantity::constant(0);
  const Relation any = compare(compared, nothing), some = compare(agree, nothing);
  require(!any.is(Ordering::kLess), "a count that it needs is negative");
  if (any.is(Ordering::kEqual)) {
    const Quantity ours = sum_of(rows, "ours");
    const Relation has_ours = compare(ours, nothing);
    require(!has_ours.is(Ordering::kLess), "a count that it needs is negative");
    return has_ours.say({.equal = "None of the published times has its cell in this run, so "
                                  "nothing is said of their agreement. "}) +
           (has_ours.is(Ordering::kEqual)
                ? Text()
                : say("{} published times have a time of this run beside them, and {} was held "
                      "against it: why stands beside each in the table published_times. ",
                      {whole(ours), because(any, "none")}));
  }
  return say("{} of {} published times were held against their cell in this run, each at the pace "
             "that the other cells of its study show, which are these same rows; ",
             {whole(compared), whole(sum_of(rows, "times"))}) +
         cells_compared(rows) +
         some.say({.equal = "none agrees. ",
                   .more = say("{} agree up to a factor of {}. ",
                               {whole(agree), decimal(Quantity::constant(1.5), 1)})}) +
         beside_the_peaks(rows);
}

// Cells that ran out of memory, and what the closed form of their label says of each.
Text out_of_memory(const std::vector<Row>& rows) {
  const Quantity statuses = sum_of(rows, "statuses"), agree = sum_of(rows, "statuses_agree"),
                 more = sum_of(rows, "statuses_with_more");
  return say(
      "Of {} cells that ran out of memory, the closed form of their label says so for {}; "
      "{} would fit unless what the label does not name was alive, a second graph or "
      "AdamW's states; for {} it is something else. ",
      {whole(statuses), whole(agree), whole(more), whole(statuses - agree - more)});
}

// Times of cells that this run lacks, held against a roofline.
Text beside_rooflines(const std::vector<Row>& rows) {
  std::vector<Row> unknown;
  std::ranges::copy_if(rows, std::back_inserter(unknown),
                       [](const Row& row) { return row.text("device") == "not stated"; });
  return say(
      "{} times without a cell here lie at the multiple of a roofline that the other cells "
      "of their study have, up to a factor of {}{}. ",
      {whole(sum_of(rows, "predicted")), decimal(Quantity::constant(1.5), 1),
       unknown.empty() ? Text()
                       : say("; for {} of them the device is not stated, and the roofline "
                             "is another device's",
                             {whole(sum_of(unknown, "predicted"))})});
}

// Other figures than times: those of memory, kernels, shares, arithmetic.
Text all_published(const Evidence& e) {
  if (!e.find("published_verdicts", {})) return {};
  const std::vector<Row> rows = e.rows("published_verdicts");
  return say(
      " Over all published tables, with those of memory, kernels and arithmetic, {} figures "
      "were read: {} are suspicious, and {} were not compared.",
      {whole(sum_of(rows, "figures")), whole(sum_of(rows, "suspicious")),
       whole(sum_of(rows, "not_compared"))});
}

Text published(const Evidence& e) {
  const std::vector<Row> rows = e.rows("published");
  const Quantity suspicious = sum_of(rows, "suspicious");
  Text out =
      held_against_ours(rows) + out_of_memory(rows) + beside_rooflines(rows) +
      say("Of all {}, {} "
          "have a reason beside the device's speed that their own figures or labels show, such as "
          "launches, a profiler or a missing warm-up; {} are suspicious",
          {whole(sum_of(rows, "cells")), whole(sum_of(rows, "explainable")), whole(suspicious)});
  if (suspicious.value > 0) {
    const Row worst = e.largest("published", {}, "suspicious");
    out += say(", {} in study {}, {}",
               {because(leads(worst, rows, "suspicious"), "the largest part of them"),
                worst.quote("study"), worst.quote("table")});
  }
  return out + say(". {} were not compared with anything.", {whole(sum_of(rows, "not_compared"))}) +
         all_published(e);
}

constexpr Question kOther[] = {
    {"training", "Training", "Does the loss fall?", "tracestep study", training},
    {"published", "Published tables", "Do the published tables agree with this run?",
     "tracestep study", published},
};

}  // namespace

std::vector<Evidence::Row> rows_at_end(const std::vector<Evidence::Row>& rows) {
  constexpr std::size_t kMost = 20;
  const std::size_t count = std::min(kMost, (rows.size() + 1) / 2);
  return {rows.end() - static_cast<std::ptrdiff_t>(count), rows.end()};
}

Quantity loss_at_end(const std::vector<Evidence::Row>& rows) {
  const std::vector<Evidence::Row> end = rows_at_end(rows);
  return sum_of(end, "loss") / count_of(end, "loss");
}

std::span<const Question> other_questions() {
  return kOther;
}

}  // namespace tracestep
