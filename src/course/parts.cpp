// Verdicts on published times of attention's parts: softmax beside products, and scores in two
// formats.
#include <algorithm>

#include <fmt/format.h>

#include "course/modelled.h"
#include "course/published.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

struct PartsRow {
  const PublishedParts& p;
  double ratio_percent = NAN;    // softmax over attention's products, from its times
  double low = NAN, high = NAN;  // bounds by a roofline of its device
  ReplayVerdict verdict = {};
};

// Returns the time of attention's two products, or of the scores if only that is given.
double products_of(const PublishedParts& p) {
  if (std::isfinite(p.products_ms)) return p.products_ms;
  return std::isfinite(p.values_ms) ? p.scores_ms + p.values_ms : p.scores_ms;
}

ReplayVerdict not_compared(std::string why) {
  return {Agreement::kNotCompared, "not_compared", std::move(why)};
}

// Finds the float32 row of the same cell; nullptr: there is none.
const PublishedParts* in_fp32(const Published& published, const PublishedParts& p) {
  const auto found = std::ranges::find_if(published.parts, [&](const PublishedParts& other) {
    return other.study == p.study && other.table == p.table && other.size == p.size &&
           other.context == p.context && other.precision == "fp32";
  });
  return found == published.parts.end() ? nullptr : &*found;
}

// Judges a time of scores alone: a product gains no more than the ratio of the peaks, unless its
// fp32 kernel is worse than its bf16 one. A gain within that bound is no agreement.
ReplayVerdict judge_scores(const Published& published, const PublishedParts& p) {
  const PublishedParts* fp32 = in_fp32(published, p);
  const PublishedDevice* device = known_device(p.device);
  if (p.precision == "fp32" || fp32 == nullptr || device == nullptr) {
    return not_compared("a product alone, which no row of ours has");
  }
  const double gain = fp32->scores_ms / p.scores_ms;
  const double most =
      std::max(device->bf16_tflops / device->fp32_tflops, 2.0);  // or half the bytes
  const std::string text =
      fmt::format("{:.2f} times as fast as in fp32; the peaks allow {:.2f}", gain, most);
  if (gain <= most) return not_compared(text);
  return {Agreement::kExplainable, "float32_path",
          text + " at equal efficiency: its fp32 product stays further below its peak"};
}

ReplayVerdict judge_ratio(PartsRow& row) {
  const PublishedParts& p = row.p;
  const PublishedDevice* device = known_device(p.device);
  if (p.size.empty() || device == nullptr) return not_compared("its cell or device is not stated");
  const ModelledPass pass = modelled_pass({p.size, p.context, p.precision, "inference"}, *device);
  const double expected = 100 * pass.softmax_ms / pass.attention_product_ms;
  row.low = kLeastOfPeak * expected;
  row.high = expected / kLeastOfPeak;
  const std::string text = fmt::format(
      "{:.0f} to {:.0f} % by a roofline of its device, if kernels reach half of the peaks", row.low,
      row.high);
  if (row.ratio_percent >= row.low && row.ratio_percent <= row.high) {
    return {Agreement::kAgree, "roofline", text};
  }
  if (row.ratio_percent < row.low) {
    return {Agreement::kNotCompared, "off_the_roofline",
            text + "; caches, or products below that, take it out of there"};
  }
  return {Agreement::kSuspicious, "above_the_roofline", text};
}

PartsRow judge_parts(const Published& published, const PublishedParts& p) {
  PartsRow row{.p = p};
  if (p.is_oom) {
    row.verdict = {Agreement::kNotCompared, "out_of_memory", "the cell ran out of memory"};
  } else if (!std::isfinite(p.softmax_ms)) {
    row.verdict = judge_scores(published, p);
  } else if (std::isfinite(p.model_products_ms)) {
    row.verdict = {Agreement::kExplainable, "another_whole",
                   fmt::format("beside all products of the model, {:.1f} ms, and not those of "
                               "attention",
                               p.model_products_ms)};
  } else {
    row.ratio_percent = 100 * p.softmax_ms / products_of(p);
    row.verdict = judge_ratio(row);
  }
  return row;
}

}  // namespace

Table parts_replay_table(const Published& published) {
  using R = const PartsRow&;
  const auto ms = [](const char* name, const char* title, double PublishedParts::*member) {
    return Field<PartsRow>{real_column(name, title, "ms", 3),
                           [member](R r) { return finite_or_null(r.p.*member); }};
  };
  const Fields<PartsRow> fields = {
      {col::study, [](R r) { return r.p.study; }},
      {col::table, [](R r) { return r.p.table; }},
      {col::size, [](R r) { return or_null(r.p.size); }},
      {col::context, [](R r) { return when(r.p.context > 0, r.p.context); }},
      {col::precision, [](R r) { return r.p.precision; }},
      ms("softmax_ms", "softmax", &PublishedParts::softmax_ms),
      ms("scores_ms", "scores", &PublishedParts::scores_ms),
      ms("values_ms", "values", &PublishedParts::values_ms),
      ms("products_ms", "both products", &PublishedParts::products_ms),
      ms("model_products_ms", "all products", &PublishedParts::model_products_ms),
      {real_column("ratio_percent", "softmax over products", "%", 1),
       [](R r) { return finite_or_null(r.ratio_percent); }},
      {col::low_percent, [](R r) { return finite_or_null(r.low); }},
      {col::high_percent, [](R r) { return finite_or_null(r.high); }},
      {col::verdict, [](R r) { return name_of(r.verdict.agreement); }},
      {col::code, [](R r) { return r.verdict.code; }},
      {col::reason, [](R r) { return r.verdict.text; }}};
  std::vector<PartsRow> rows;
  for (const PublishedParts& p : published.parts) rows.push_back(judge_parts(published, p));
  return table_of("published_parts", "Published times of attention's parts", fields, rows);
}

}  // namespace tracestep
