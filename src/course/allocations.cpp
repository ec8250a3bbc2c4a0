// Compares the published largest allocations of each category with those of this program, which
// predicts every buffer without running.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "analysis/origins.h"
#include "base/error.h"
#include "course/modelled.h"
#include "course/ours.h"
#include "course/published.h"
#include "lab/memory/run.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// The predicted buffers of a pass through a model cut to one layer, as all layers have equal ones.
class Buffers {
 public:
  Buffers(const PublishedAllocation& a, std::string_view precision) {
    RunSpec spec{.model = preset(a.size),
                 .shape = {kPublishedBatch, a.context},
                 .mode = a.pass == "forward" ? Mode::kForward : Mode::kStep,
                 .ops = Granularity::kPrimitive};
    spec.model.layers = 1;
    spec.precision = parse_precision("precision", precision);
    buffers_ = predict_memory(spec, {}).map.buffers;
  }

  // The MiB of the largest buffer for which `counts` holds.
  double largest(const std::function<bool(const MappedBuffer&)>& counts) const {
    std::int64_t out = 0;
    for (const MappedBuffer& b : buffers_) {
      if (counts(b)) out = std::max(out, b.bytes);
    }
    return static_cast<double>(out) / kMiB;
  }

 private:
  std::vector<MappedBuffer> buffers_;
};

// True for a result of forward: neither a leaf, nor a copy of a weight, nor scratch memory.
bool is_result(const MappedBuffer& b) {
  return b.phase == Phase::kForward &&
         (b.category == Category::kActivation || b.category == Category::kTemporary);
}

std::function<bool(const MappedBuffer&)> in(std::vector<std::string> components) {
  return [components = std::move(components)](const MappedBuffer& b) {
    const std::string component = component_of(b.path);
    return is_result(b) && std::ranges::any_of(components, [&](const std::string& c) {
             return component == c || component.starts_with(c + ".");
           });
  };
}

// Returns a filter for those of our buffers that a published category means.
std::function<bool(const MappedBuffer&)> meaning_of(const std::string& category) {
  using scope::path;
  const std::string attention(scope::kAttention);
  if (category == "AttnScores") return in({path({attention, scope::kScores})});
  if (category == "Softmax") return in({path({attention, scope::kSoftmax})});
  if (category == "AttnOut") {
    return [](const MappedBuffer& b) {
      return is_result(b) && b.op == "matmul" &&
             component_of(b.path) == path({scope::kAttention, scope::kValues});
    };
  }
  if (category == "Attn") return in({attention + ".q_proj", attention + ".output_proj"});
  if (category == "FFN") return in({std::string(scope::kFeedForward)});
  if (category == "Norm") return in({std::string(scope::kFirstNorm)});
  // The residual stream begins as the embedding, to which blocks add in place.
  if (category == "Embed" || category == "Block") return in({std::string(scope::kEmbedding)});
  if (category == "einsum") {  // of the layers: results of products, and what they read of weights
    return [](const MappedBuffer& b) {
      return !layer_of(b.path).empty() && b.phase == Phase::kForward &&
             (b.category == Category::kWeightCast || (is_result(b) && b.op == "matmul"));
    };
  }
  if (category == "Gradient") {
    return [](const MappedBuffer& b) { return b.category == Category::kGradient; };
  }
  TRACESTEP_CHECK(category == "Opt State", "no category \"{}\"", category);
  return [](const MappedBuffer& b) { return b.category == Category::kOptimizerState; };
}

struct AllocationRow {
  const PublishedAllocation& a;
  double fp32_mib = 0, bf16_mib = 0;  // ours
  ReplayVerdict verdict = {};
};

ReplayVerdict judge(const AllocationRow& row, const AllocationRow& scores) {
  constexpr double kRounding = 0.051;  // one decimal is printed
  const auto same = [](double a, double b) { return std::abs(a - b) <= kRounding; };
  const PublishedAllocation& a = row.a;
  if (!same(a.bf16_mib - a.fp32_mib, a.difference_mib)) {
    return {Agreement::kSuspicious, "arithmetic", "its difference is not that of its columns"};
  }
  if (same(a.fp32_mib, row.fp32_mib) && same(a.bf16_mib, row.bf16_mib)) {
    return {Agreement::kAgree, "predicted", "as the program predicts, in both formats"};
  }
  if (same(a.fp32_mib, scores.fp32_mib) && same(a.bf16_mib, scores.bf16_mib)) {
    return {Agreement::kExplainable, "label",
            "the size of the scores, B·H·T²: the label is that of another tensor"};
  }
  return {Agreement::kSuspicious, "unexplained",
          fmt::format("the program predicts {:.1f} and {:.1f} MiB", row.fp32_mib, row.bf16_mib)};
}

AllocationRow predicted(const PublishedAllocation& a, const Buffers& fp32, const Buffers& bf16,
                        const std::string& category) {
  const auto counts = meaning_of(category);
  return {a, fp32.largest(counts), bf16.largest(counts)};
}

}  // namespace

Table allocation_replay_table(const Published& published) {
  using R = const AllocationRow&;
  const Fields<AllocationRow> fields = {
      {col::study, [](R r) { return r.a.study; }},
      {col::size, [](R r) { return r.a.size; }},
      {col::context, [](R r) { return r.a.context; }},
      {col::pass, [](R r) { return r.a.pass; }},
      {col::category, [](R r) { return r.a.category; }},
      {real_column("fp32_mib", "fp32", "MiB", 1), [](R r) { return r.a.fp32_mib; }},
      {real_column("our_fp32_mib", "predicted", "MiB", 1), [](R r) { return r.fp32_mib; }},
      {real_column("bf16_mib", "bf16", "MiB", 1), [](R r) { return r.a.bf16_mib; }},
      {real_column("our_bf16_mib", "predicted", "MiB", 1), [](R r) { return r.bf16_mib; }},
      {col::verdict, [](R r) { return name_of(r.verdict.agreement); }},
      {col::code, [](R r) { return r.verdict.code; }},
      {col::reason, [](R r) { return r.verdict.text; }}};
  std::vector<AllocationRow> rows;
  const PublishedAllocation* head = nullptr;
  std::optional<Buffers> fp32, bf16;
  for (const PublishedAllocation& a : published.allocations) {
    if (head == nullptr || head->pass != a.pass || head->context != a.context ||
        head->size != a.size) {
      head = &a;
      fp32.emplace(a, "fp32");
      bf16.emplace(a, "bf16");
    }
    rows.push_back(predicted(a, *fp32, *bf16, a.category));
    rows.back().verdict = judge(rows.back(), predicted(a, *fp32, *bf16, "AttnScores"));
  }
  return table_of("published_allocations",
                  "Published largest allocations beside those that the program predicts", fields,
                  rows);
}

}  // namespace tracestep
