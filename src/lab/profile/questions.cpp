// Questions that a profile answers: clocks, kernels, matrix products, softmax, rooflines.
#include <algorithm>
#include <map>

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
  return fmt::format("{} context {} {} {} {} {}", row.text("size"), row.whole("context"),
                     row.text("mode"), row.text("precision"), row.text("ops"),
                     row.text("attention"));
}

// Another row of the same table that equals `row` except for the cells in `other`.
Row beside(const Evidence& e, const char* table, const Row& row, Evidence::Where other) {
  for (const char* column : {"size", "mode", "precision", "ops", "attention"}) {
    if (std::ranges::none_of(other, [&](const auto& o) { return o.first == column; })) {
      other.emplace_back(column, row.text(column));
    }
  }
  other.emplace_back("context", row.whole("context"));
  return e.row(table, other);
}

std::string clocks(const Evidence& e) {
  const Row row = e.largest("clocks", {{"mode", "step"}}, "plain_wall_ms");
  const double cost = row.number("cost_percent");
  std::string out = fmt::format(
      "{}: a step that nobody records takes {} by the wall clock and {} from the first kernel's "
      "start to the last one's end; in recorded steps kernels run for {} and {} lie between them. "
      "Kernels are {:.0f} % of the wall. ",
      label(row), row.duration("plain_wall_ms"), row.duration("plain_span_ms"),
      row.duration("busy_ms"), row.duration("gaps_ms"), row.number("busy_percent"));
  if (cost > 5.0) {
    out += fmt::format(
        "Recorded steps take {:.1f} % longer than plain ones, so a profile's wall "
        "time is not the step's time.",
        cost);
  } else if (cost < -5.0) {
    out += fmt::format(
        "Recorded steps came out {:.1f} % shorter than plain ones: the machine was "
        "not quiet, and the clocks agree no better than that.",
        -cost);
  } else {
    out += fmt::format("Recording changes the wall time by {:.1f} %: profile and wall clock agree.",
                       cost);
  }
  return out;
}

std::string top_kernel(const Evidence& e) {
  const Row all = main_pass(e, "step");
  const Row forward = beside(e, "passes", all, {{"pass", "forward"}}),
            backward = beside(e, "passes", all, {{"pass", "backward"}});
  const std::string name = forward.text("top_kernel");
  return fmt::format(
      "{}: in forward {} takes {:.1f} % of the kernels' time in {:.0f} launches of one pass; in "
      "backward {} takes {:.1f} % in {:.0f}. {}",
      label(all), name, forward.number("top_percent"), forward.number("top_launches"),
      backward.text("top_kernel"), backward.number("top_percent"), backward.number("top_launches"),
      name == backward.text("top_kernel") ? "It is the same kernel in both."
                                          : "They are different kernels.");
}

std::string other_kernels(const Evidence& e) {
  const Row all = main_pass(e, "step");
  const std::vector<Row> kinds = e.rows("kinds@" + label(all));
  std::string list;
  double shown = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(4, kinds.size()); ++i) {
    shown += kinds[i].number("share_percent");
    list += fmt::format("{}{} ({}, {})", i == 0 ? "" : ", ", kinds[i].text("op"),
                        kinds[i].text("class"), percent_text(kinds[i].number("share_percent")));
  }
  const double others = 100.0 - all.number("products_percent");
  return fmt::format(
      "{}: kernels that multiply no matrices take {:.1f} % of the kernels' time. The "
      "longest are {}: {:.1f} % together. {}",
      label(all), others, list, shown,
      others > 50.0 ? "They take more than the matrix products do."
                    : "The matrix products take more.");
}

std::string product_share(const Evidence& e) {
  const Row step = main_pass(e, "step");
  const Row inference = beside(e, "passes", step, {{"mode", "inference"}, {"pass", "all"}});
  const double before = inference.number("products_percent"),
               after = step.number("products_percent");
  const double products = over(step.number("products_ms"), inference.number("products_ms"));
  const double others = over(step.number("ms") - step.number("products_ms"),
                             inference.number("ms") - inference.number("products_ms"));
  const Row optimizer = beside(e, "passes", step, {{"pass", "optimizer"}});
  return fmt::format(
      "{}: matrix products take {:.1f} % of the kernels' time in inference and {:.1f} % in a "
      "training step, so their share {}. Both parts of the fraction grow: matrix products take "
      "{:.2f} times as long, as backward multiplies twice for each product of forward, and all "
      "other kernels {:.2f} times; AdamW alone is {:.1f} % of the step's kernels.",
      label(step), before, after,
      after < before ? "falls, because the others grow more"
                     : "rises, because the others grow less",
      products, others, 100.0 * over(optimizer.number("ms"), step.number("ms")));
}

std::string softmax(const Evidence& e) {
  const Row all = main_pass(e, "step");
  const Row row = e.row("attention@" + label(all),
                        {{"phase", "forward"}, {"part", "softmax, with scale and mask"}});
  const double time = row.number("ms_of_products_percent"),
               flops = row.number("flops_of_products_percent"),
               bytes = row.number("bytes_of_products_percent");
  return fmt::format(
      "{}, forward: softmax with scale and mask takes {:.0f} % of the time of attention's two "
      "products, with {:.1f} % of their FLOPs and {:.0f} % of their bytes. {} A product does 2·D "
      "operations per score, not N³; the comparison is with attention's own products, not with all "
      "products of the model.",
      label(all), time, flops, bytes,
      time > 3.0 * flops
          ? "FLOPs do not predict the time: softmax reads and writes every score for "
            "a handful of operations."
          : "Here the time follows the FLOPs.");
}

std::string launches(const Evidence& e) {
  const std::vector<Row> rows = e.rows("launch_check");
  std::string counts;
  const Row all = main_pass(e, "step");
  for (const Row& row : rows) {
    const std::string verdict = row.text("verdict");
    if (verdict != "ok") {
      return fmt::format("No: {} of {}: {} ran, {} expected ({}).", row.text("what"),
                         row.text("cell"), row.number("ran"), row.number("expected"), verdict);
    }
    if (row.text("cell") == label(all) && row.text("what").ends_with("products, forward")) {
      counts += fmt::format(" {} {} ({}).", row.number("ran"), row.text("what"), row.text("why"));
    }
  }
  return fmt::format("Yes, in all {} checks. {}, one pass:{}", rows.size(), label(all), counts);
}

std::string bound(const Evidence& e) {
  const Row all = main_pass(e, "step");
  double by_bytes = 0, by_flops = 0, worst = 0;
  std::optional<Row> slowest;
  for (const Row& row : e.rows("matrix@" + label(all))) {
    const std::string part = row.text("component");
    if (part == "gaps" || part == "total" || part == "overlap") continue;
    if (row.text_or("bound", "").empty()) continue;
    (row.text("bound") == "bytes" ? by_bytes : by_flops) += row.number("ms");
    // The possible gain: the kernel's time beyond its roofline time.
    const double lost = row.number("ms") * (1.0 - row.number("roof_percent") / 100.0);
    if (lost > worst) {
      worst = lost;
      slowest = row;
    }
  }
  require(by_bytes + by_flops > 0, "the device's ceilings were not measured");
  require(slowest.has_value(), "every kernel is above the measured roof, so the roof is too low");
  const double whole = by_bytes + by_flops;
  return fmt::format(
      "{}: kernels bound by bytes take {:.0f} % of the kernels' time, those bound by arithmetic "
      "{:.0f} %. {} Most time above the roofline is in {} of {} ({}): {} at {:.0f} % of its roof.",
      label(all), 100.0 * by_bytes / whole, 100.0 * by_flops / whole,
      by_bytes > by_flops ? "Moving bytes is the larger part." : "Arithmetic is the larger part.",
      slowest->text("op"), slowest->text("component"), slowest->text("phase"),
      slowest->duration("ms"), slowest->number("roof_percent"));
}

std::string components(const Evidence& e) {
  const Row all = main_pass(e, "step");
  std::map<std::string, double> ms;
  double total = 0;
  for (const Row& row : e.rows("matrix@" + label(all))) {
    const std::string component = row.text("component");
    if (component == "total") {
      total = row.number("ms");
    } else {
      ms[component.substr(0, component.find('.'))] += row.number("ms");
    }
  }
  require(total > 0, "the total of the matrix is missing");
  double sum = 0;
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, value] : ms) {
    sum += value;
    order.emplace_back(value, name);
  }
  require(sum > 0.999 * total && sum < 1.001 * total,
          fmt::format("the parts add up to {:.2f} % of the step", 100.0 * sum / total));
  std::ranges::sort(order, std::greater{});
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(4, order.size()); ++i) {
    list += fmt::format("{}{} {:.1f} %", i == 0 ? "" : ", ", order[i].second,
                        100.0 * order[i].first / total);
  }
  return fmt::format("{}: {}. All parts, gaps between kernels among them, add up to the step's {}.",
                     label(all), list, format_duration_ms(total));
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
