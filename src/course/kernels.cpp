// Verdicts on published profiles: kernels with their shares and counts, and the share of matrix
// products. A share of another device is no measure of ours, so shares are held against each other
// and against what a roofline of their own device allows; counts against our program's kernels.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "course/modelled.h"
#include "course/ours.h"
#include "course/published.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/config.h"

namespace tracestep {
namespace {

using Kernels = std::vector<PublishedKernel>;

bool is_same_cell(const PublishedKernel& k, const PublishedShare& s) {
  return k.study == s.study && k.device == s.device && k.size == s.size && k.context == s.context &&
         k.pass == s.pass && !s.is_oom;
}

// --- counts --------------------------------------------------------------------------------------

// The modelled kernels of one pass of our program, op by op.
ModelledPass kernels_of_pass(const PublishedKernel& k) {
  return modelled_pass({k.size, k.context, "fp32", k.pass}, *known_device("A100 SXM 80 GB"));
}

// Returns the number of profiled passes: the largest divisor of the counts in the table of `of`,
// which are taken per layer except for products. 1: the counts show none.
std::int64_t common_divisor(const Kernels& kernels, const PublishedKernel& of) {
  std::int64_t out = 0;
  for (const PublishedKernel& k : kernels) {
    const bool counts = k.study == of.study && k.table == of.table && k.count > 0;
    if (!counts || k.size.empty()) continue;
    const std::int64_t layers = preset(k.size).layers;
    if (k.kind != "product" && k.count % layers != 0) return 1;
    out = std::gcd(out, k.kind == "product" ? k.count : k.count / layers);
  }
  return out;
}

// Writes a count by layers: "3·12 + 1" of 37.
std::string by_layers(std::int64_t count, std::int64_t layers) {
  const std::int64_t rest = count % layers;
  return fmt::format("{}·{}{}", count / layers, layers,
                     rest == 0 ? "" : fmt::format(" + {}", rest));
}

// A model whose forward has `count` products with weights, 7·L + 1; nullptr: none has.
const ModelConfig* model_with_products(std::int64_t count) {
  for (const ModelConfig& m : model_presets()) {
    if (7 * m.layers + 1 == count) return &m;
  }
  return nullptr;
}

ReplayVerdict judge_unnamed_count(const Kernels& kernels, const PublishedKernel& k) {
  std::int64_t sum = 0;
  for (const PublishedKernel& other : kernels) {
    const bool is_like = other.study == k.study && other.table == k.table && other.pass == k.pass;
    if (is_like && other.kind == "product") sum += other.count;
  }
  const ModelConfig* model = model_with_products(sum);
  if (model == nullptr) {
    return {Agreement::kNotCompared, "not_compared", "its model and context are not stated"};
  }
  return {Agreement::kExplainable, "model",
          fmt::format("the table's products run {} = 7·{} + 1 times: its model is {}", sum,
                      model->layers, model->name)};
}

ReplayVerdict judge_count(const Kernels& kernels, const PublishedKernel& k) {
  if (k.size.empty()) return judge_unnamed_count(kernels, k);
  const ModelledPass one = kernels_of_pass(k);
  const std::int64_t layers = preset(k.size).layers, divisor = common_divisor(kernels, k);
  const bool is_product = k.kind == "product";
  const double most = is_product ? one.products : one.launches - one.products;
  if (divisor > 1 && is_product) {
    return {Agreement::kExplainable, "several_passes",
            fmt::format(
                "all counts of the table divide by {}, so they are of {} passes: {} = {} in "
                "one, of the {:.0f} products that a pass of the program has",
                divisor, divisor, k.count / divisor, by_layers(k.count / divisor, layers), most)};
  }
  if (divisor > 1) {
    return {Agreement::kExplainable, "several_passes",
            fmt::format("{} for each layer, in passes whose number divides {}; one pass of the "
                        "program has {:.1f} kernels beside products for each layer",
                        k.count / layers, divisor, most / static_cast<double>(layers))};
  }
  if (static_cast<double>(k.count) <= most) {
    return {Agreement::kNotCompared, "launches",
            fmt::format("not above the {:.0f} such kernels of one pass", most)};
  }
  return {Agreement::kSuspicious, "unexplained",
          fmt::format("one pass of the program has {:.0f} such kernels", most)};
}

// --- shares --------------------------------------------------------------------------------------

// Returns the percentages of all kernels in the listing of `of` (table, pass and cell), summed up.
double listed_percent(const Kernels& kernels, const PublishedKernel& of) {
  double out = 0;
  for (const PublishedKernel& k : kernels) {
    const bool is_like = k.study == of.study && k.table == of.table && k.pass == of.pass &&
                         k.size == of.size && k.context == of.context;
    if (is_like && std::isfinite(k.percent)) out += k.percent;
  }
  return out;
}

ReplayVerdict judge_share(const Published& published, const PublishedKernel& k) {
  constexpr double kRounding = 0.5;
  const double listed = listed_percent(published.kernels, k);
  if (listed > 100 + kRounding) {
    return {Agreement::kSuspicious, "more_than_all",
            fmt::format("its listing adds up to {:.1f} %", listed)};
  }
  for (const PublishedShare& s : published.product_shares) {
    if (!is_same_cell(k, s)) continue;
    const bool is_product = k.kind == "product";
    const double most = is_product ? s.percent : 100 - s.percent;
    const bool fits = k.percent <= most + kRounding;
    return {fits ? Agreement::kNotCompared : Agreement::kSuspicious,
            fits ? "part_of_its_kind" : "more_than_its_kind",
            fmt::format("{} have {:.1f} % in the same cell",
                        is_product ? "products" : "all kernels beside products", most)};
  }
  return {Agreement::kNotCompared, "not_compared",
          "the study has no share of products in the same cell"};
}

// Judges a kernel by its count if stated, else by its share; within its bound it is not compared.
ReplayVerdict judge_kernel(const Published& published, const PublishedKernel& k) {
  if (k.is_oom) return {Agreement::kNotCompared, "out_of_memory", "the cell ran out of memory"};
  return k.count > 0 ? judge_count(published.kernels, k) : judge_share(published, k);
}

// --- the share of products -----------------------------------------------------------------------

// The share that our profile of the same cell has; null: there is none.
Json our_share(const ReplayInput& ours, const PublishedShare& s) {
  if (s.size.empty() || s.context == 0) return {};
  const RunSpec run = run_of({s.size, s.context, "fp32", s.pass});
  for (const ResultRow& row : ours.rows) {
    if (row.text("pass") != "all" || !is_of_run(row, run)) continue;
    if (const auto percent = row.number("products_percent")) return *percent;
  }
  return {};
}

struct ShareRow {
  const PublishedShare& s;
  ShareRange range;  // 0 to 0: none
  ReplayVerdict verdict;
};

ShareRow judge_product_share(const PublishedShare& s) {
  if (s.is_oom) {
    return {s, {}, {Agreement::kNotCompared, "out_of_memory", "the cell ran out of memory"}};
  }
  const PublishedDevice* device = known_device(s.device);
  if (s.size.empty() || s.context == 0 || device == nullptr) {
    return {s, {}, {Agreement::kNotCompared, "not_compared", "its cell or device is not stated"}};
  }
  const ModelledPass pass = modelled_pass({s.size, s.context, "fp32", s.pass}, *device);
  const ShareRange range = share_range(pass.product_ms, pass.other_ms, kLeastOfPeak);
  const std::string text = fmt::format(
      "{:.0f} to {:.0f} % by a roofline of its device, if kernels reach half of the peaks",
      range.low, range.high);
  if (range.has(s.percent)) return {s, range, {Agreement::kAgree, "roofline", text}};
  // A roofline knows no caches and no kernels that are too small for the device.
  return {s,
          range,
          {Agreement::kNotCompared, "off_the_roofline",
           text + "; caches, or products below that, take it out of there"}};
}

}  // namespace

Table kernel_replay_table(const Published& published) {
  struct Row {
    const PublishedKernel& k;
    ReplayVerdict verdict;
  };
  using R = const Row&;
  const Fields<Row> fields = {
      {col::study, [](R r) { return r.k.study; }},
      {col::table, [](R r) { return r.k.table; }},
      {col::size, [](R r) { return or_null(r.k.size); }},
      {col::context, [](R r) { return when(r.k.context > 0, r.k.context); }},
      {col::pass, [](R r) { return r.k.pass; }},
      {col::kernel, [](R r) { return or_null(r.k.kernel); }},
      {col::kind, [](R r) { return or_null(r.k.kind); }},
      {col::percent, [](R r) { return finite_or_null(r.k.percent); }},
      {col::total_ms("of all profiled passes"), [](R r) { return finite_or_null(r.k.total_ms); }},
      {col::count("in all profiled passes"), [](R r) { return when(r.k.count > 0, r.k.count); }},
      {col::verdict, [](R r) { return name_of(r.verdict.agreement); }},
      {col::code, [](R r) { return r.verdict.code; }},
      {col::reason, [](R r) { return r.verdict.text; }}};
  std::vector<Row> rows;
  for (const PublishedKernel& k : published.kernels)
    rows.push_back({k, judge_kernel(published, k)});
  return table_of("published_kernels", "Published kernels: shares and counts", fields, rows);
}

Table product_share_replay_table(const Published& published, const ReplayInput& ours) {
  using R = const ShareRow&;
  const Fields<ShareRow> fields = {
      {col::study, [](R r) { return r.s.study; }},
      {col::size, [](R r) { return or_null(r.s.size); }},
      {col::context, [](R r) { return when(r.s.context > 0, r.s.context); }},
      {col::pass, [](R r) { return r.s.pass; }},
      {col::percent.titled("published"), [](R r) { return finite_or_null(r.s.percent); }},
      {col::low_percent, [](R r) { return positive_or_null(r.range.low); }},
      {col::high_percent, [](R r) { return positive_or_null(r.range.high); }},
      {real_column("our_percent", "ours", "%", 1, "measured, on another device"),
       [&](R r) { return our_share(ours, r.s); }},
      {col::verdict, [](R r) { return name_of(r.verdict.agreement); }},
      {col::code, [](R r) { return r.verdict.code; }},
      {col::reason, [](R r) { return r.verdict.text; }}};
  std::vector<ShareRow> rows;
  for (const PublishedShare& s : published.product_shares) rows.push_back(judge_product_share(s));
  return table_of("published_product_shares", "Published shares of matrix products", fields, rows);
}

}  // namespace tracestep
