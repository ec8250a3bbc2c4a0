#include "lab/profile/roof_answer.h"

#include <algorithm>

#include "lab/profile/shares.h"

namespace tracestep {
namespace {

using Row = Evidence::Row;

// What a kernel would gain if it reached its roof.
Quantity gain_at_roof(const Row& row) {
  return row.get("ms") * (Quantity::constant(100) - row.get("roof_percent")) /
         Quantity::constant(100);
}

// "matmul of ffn.w1 (backward)"
Text operation(const Row& row) {
  return say("{} of {} ({})", {row.quote("op"), row.quote("component"), row.quote("phase")});
}

// That another kernel of the same kind is above the roof that this one is held against.
Text roof_too_low(const Row& row, const std::vector<Row>& kernels) {
  std::vector<Row> alike;
  std::ranges::copy_if(kernels, std::back_inserter(alike), [&](const Row& other) {
    return other.text("bound") == row.text("bound") &&
           other.text_or("class", "") == row.text_or("class", "");
  });
  const Row best = *std::ranges::max_element(
      alike, {}, [](const Row& other) { return other.get("roof_percent").value; });
  const Quantity reached = best.get("roof_percent");
  return compare(reached, Quantity::constant(100))
      .say({.more = say(" That roof was measured too low: {} is above it, at {}, and at "
                        "that rate it would be {}.",
                        {operation(best), percent(reached),
                         duration(row.get("ms") * row.get("roof_percent") / reached)})});
}

// The kernel that would gain most at its roof, and the next one.
Text far_below_its_roof(std::vector<Row> kernels) {
  std::ranges::stable_sort(kernels, std::greater{},
                           [](const Row& row) { return gain_at_roof(row).value; });
  const Row worst = kernels.front();
  const Relation below = compare(worst.get("roof_percent"), Quantity::constant(100));
  require(below.is(Ordering::kLess),
          because(below, "every kernel is above the measured roof, so the roof is too low"));
  std::vector<Row> of_node;  // the kernels of one operation, such as both products of backward
  std::ranges::copy_if(kernels, std::back_inserter(of_node), [&](const Row& row) {
    return row.text_or("op", "") == worst.text("op") &&
           row.text("component") == worst.text("component") &&
           row.text_or("phase", "") == worst.text("phase");
  });
  const Text which = of_node.size() == 1 ? Text()
                                         : say("One of the {} kernels with a roof of ",
                                               {whole(count_of(of_node, "kernel"))});
  Text next;
  if (kernels.size() > 1 && gain_at_roof(kernels[1]).value > 0) {
    next = say("; the next, of {}, would gain {}",
               {operation(kernels[1]), duration(gain_at_roof(kernels[1]))});
  }
  return which +
         say("{} takes {} in {} launches, where its roof would allow {}: picked for what it would "
             "gain there, {}{}.",
             {operation(worst), duration(worst.get("ms")), whole(worst.get("launches")),
              duration(worst.get("ms") * worst.get("roof_percent") / Quantity::constant(100)),
              duration(gain_at_roof(worst)), next}) +
         roof_too_low(worst, kernels);
}

// Of the time of kernels bound by bytes, what passes the bandwidth that the device's maker
// publishes: there it does not help that the measured one may be too low.
Text above_the_published(const Evidence& e, const std::vector<Row>& by_bytes, bool is_fused) {
  const auto measured = e.find("ceilings", {{"ceiling", "bandwidth"}});
  if (!measured || !measured->has("published")) return {};
  const Quantity limit = 100.0 * (measured->get("published") / measured->get("value"));
  std::vector<Row> above;
  std::ranges::copy_if(by_bytes, std::back_inserter(above),
                       [&](const Row& row) { return row.get("roof_percent").value > limit.value; });
  if (above.empty()) return {};
  return say(
      "{} of the time of those bound by bytes is {} {}, the bandwidth that the device's maker "
      "publishes: there "
      "caches hold some of the bytes{}. ",
      {percent(share_of(sum_of(above, "ms"), sum_of(by_bytes, "ms"))),
       because(compare(least_of(above, "roof_percent"), limit), "above"), percent(limit),
       is_fused ? ", or a mask hides them" : ""});
}

// `share`: of the time of all kernels, those above their roof.
Text above_their_roof(const Evidence& e, const Row& all, const Quantity& share,
                      const std::vector<Row>& above, const std::vector<Row>& by_bytes) {
  const bool is_fused = all.text("ops") == "fused";
  std::vector<Row> above_bytes;
  std::ranges::copy_if(above, std::back_inserter(above_bytes),
                       [](const Row& row) { return row.text("bound") == "bytes"; });
  const Quantity of_bytes = above_bytes.empty()
                                ? Quantity::constant(0)
                                : share_of(sum_of(above_bytes, "ms"), sum_of(by_bytes, "ms"));
  return compare(share, Quantity::constant(0))
             .say({.more = say(
                       "Kernels with {} of the time ({} of the time of those bound by bytes) are "
                       "above {} of their roof, up to {}. For bytes that is a copy's rate: it is "
                       "too low for them, or caches hold some of the bytes that are counted{}; "
                       "these rows do not tell which. ",
                       {percent(share), percent(of_bytes), percent(Quantity::constant(105)),
                        percent(most_of(above, "roof_percent")),
                        is_fused ? ", or a mask hides them" : ""})}) +
         (above_bytes.empty() ? Text() : above_the_published(e, by_bytes, is_fused));
}

}  // namespace

Text beside_roofs(const Evidence& e, const Row& all) {
  std::vector<Row> by_bytes, by_flops, above, kernels;
  for (const Row& row : e.rows("matrix@" + all.text("label"))) {
    const std::string part = row.text("component");
    if (part == "gaps" || part == "total" || part == "overlap" || !row.has("bound")) continue;
    (row.text("bound") == "bytes" ? by_bytes : by_flops).push_back(row);
    if (row.get("roof_percent").value > 105) above.push_back(row);
    kernels.push_back(row);
  }
  require(!kernels.empty(), "the device's ceilings were not measured");
  const Quantity all_ms = sum_of(kernels, "ms");
  const auto share = [&](const std::vector<Row>& rows) {
    return rows.empty() ? Quantity::constant(0) : share_of(sum_of(rows, "ms"), all_ms);
  };
  const Quantity moving = share(by_bytes), arithmetic = share(by_flops);
  Text out =
      say("{}: kernels bound by bytes take {} of the time of these kernels, those bound by "
          "arithmetic {}: named by the roof that a kernel would meet first, whether or not it "
          "reaches it. ",
          {all.name(), percent(moving), percent(arithmetic)}) +
      compare(noisy(moving), noisy(arithmetic))
          .say({.less = "Moving bytes is the smaller part. ",
                .equal = "Both take as long. ",
                .unclear = "Neither is larger beyond noise. ",
                .more = "Moving bytes is the larger part. "});
  if (!above.empty()) out += above_their_roof(e, all, share(above), above, by_bytes);
  return out + far_below_its_roof(kernels);
}

}  // namespace tracestep
