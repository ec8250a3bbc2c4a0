// Compares attention's softmax with its two matrix products: time, FLOPs, bytes, what is counted.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "lab/profile/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

constexpr std::string_view kParts[] = {scope::kScores, scope::kSoftmax, scope::kValues};
constexpr std::string_view kTitles[] = {"scores, q kᵀ", "softmax, with scale and mask",
                                        "values, weights v"};
constexpr double kTextbookOps = 5;  // per score: max, subtract, exp, sum, divide

constexpr std::size_t kCopies = 3, kNoPart = 4;

// Returns the part of attention that `work` belongs to: an index of kParts, kCopies (copies that
// lay operands out for the products), or kNoPart.
std::size_t part_of(const Work& work) {
  const std::size_t dot = work.component.rfind('.');
  if (!work.component.starts_with(scope::path({scope::kAttention, ""}))) return kNoPart;
  const auto part = static_cast<std::size_t>(
      std::ranges::find(kParts, work.component.substr(dot + 1)) - std::begin(kParts));
  if (part == std::size(kParts)) return kNoPart;
  return part == 1 || is_product(work) ? part : kCopies;
}

// A part of attention in one phase. `products`: the products that softmax is compared with; nullptr
// in other rows.
struct PartRow {
  std::string_view phase, part;
  WorkSums sums;
  double layers;
  const WorkSums* products;

  Json share(double WorkSums::*member) const {
    return products == nullptr ? Json() : Json(100.0 * ratio(sums.*member, products->*member));
  }
};

Fields<PartRow> fields() {
  using R = const PartRow&;
  return {{col::phase, &PartRow::phase},
          {col::part, &PartRow::part},
          {as_following(real_column("launches", "launches", "", 0, "in one step")),
           [](R r) { return r.sums.launches; }},
          {with_digits(4, col::ms("in one step, all layers")), [](R r) { return r.sums.ms; }},
          {real_column("layer_ms", "per layer", "ms", 4), [](R r) { return r.sums.ms / r.layers; }},
          {col::flops("in one step"), [](R r) { return std::int64_t{std::llround(r.sums.flops)}; }},
          {col::bytes.titled("bytes", "in one step, read and written"),
           [](R r) { return std::int64_t{std::llround(r.sums.bytes)}; }},
          {col::gflops, [](R r) { return positive_or_null(r.sums.gflops()); }},
          {col::gb_per_s, [](R r) { return positive_or_null(r.sums.gb_s()); }},
          {col::bound, [](R r) { return or_null(r.sums.bound()); }},
          {timed(col::roof_percent),
           [](R r) { return when(r.sums.roof_ms > 0, 100.0 * ratio(r.sums.roof_ms, r.sums.ms)); }},
          {timed(real_column("ms_of_products_percent", "of products' time", "%", 1)),
           [](R r) { return r.share(&WorkSums::ms); }},
          {real_column("flops_of_products_percent", "of products' FLOPs", "%", 1),
           [](R r) { return r.share(&WorkSums::flops); }},
          {real_column("bytes_of_products_percent", "of products' bytes", "%", 1),
           [](R r) { return r.share(&WorkSums::bytes); }}};
}

std::vector<std::string> conventions(const Profile& p, double softmax_flops) {
  const RunSpec& spec = p.spec.step;
  const ModelConfig& m = spec.model;
  const auto scores =
      static_cast<double>(spec.shape.batch * m.heads * spec.shape.context * spec.shape.context) *
      static_cast<double>(m.layers);
  const auto width = static_cast<double>(m.head_width());
  const double per_score = softmax_flops / scores;
  return {
      fmt::format("counted: a multiply and an add are two operations, so each product is 2·D = "
                  "{:.0f} per score and both 4·D = {:.0f}; softmax with scale and mask as this "
                  "program computes it is {:.2f} per score. Scores: B·H·T²·L = {}·{}·{}²·{} = "
                  "{:.0f}",
                  2 * width, 4 * width, per_score, spec.shape.batch, m.heads, spec.shape.context,
                  m.layers, scores),
      fmt::format("other counts of the same thing: with five operations per score (max, subtract, "
                  "exp, sum, divide) the products have 4·D/5 = {:.1f} times the operations of "
                  "softmax; with a multiply-add and a softmax element as one operation each, one "
                  "product has D = {:.0f} times. Neither predicts the ratio of times",
                  4 * width / kTextbookOps, width),
      "why not: a product does 2·D operations per score and softmax a handful, but softmax reads "
      "and writes every score at least once. Whether bytes set its time is what its part of the "
      "roof says"};
}

}  // namespace

Table attention_table(const ProfiledCell& cell) {
  const Fields<PartRow> of_part = fields();
  Table table{.name = "attention",
              .title = "Attention: softmax beside its two matrix products",
              .columns = of_part.columns()};
  std::map<std::string, std::array<WorkSums, kNoPart>> by_phase;
  for (const Work& w : cell.work.rows) {
    if (const std::size_t part = part_of(w); part != kNoPart) by_phase[w.phase][part] += w.sums;
  }
  const auto layers = static_cast<double>(cell.profile.spec.step.model.layers);
  for (Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward}) {
    const auto found = by_phase.find(std::string(name_of(phase)));
    if (found == by_phase.end()) continue;
    const auto& parts = found->second;
    WorkSums both = parts[0];
    both += parts[2];
    const auto add = [&](std::string_view part, const WorkSums& sums, const WorkSums* products) {
      table.add_row(of_part.row({name_of(phase), part, sums, layers, products}));
    };
    for (std::size_t i = 0; i < std::size(kParts); ++i) {
      add(kTitles[i], parts[i], i == 1 ? &both : nullptr);
    }
    add("both products", both, nullptr);
    if (parts[kCopies].launches > 0) add("copies for the products", parts[kCopies], nullptr);
    const bool is_known = cell.profile.spec.step.model.captured == nullptr;
    if (phase == Phase::kForward && is_known)
      table.notes = conventions(cell.profile, parts[1].flops);
  }
  return table;
}

}  // namespace tracestep
