#include "lab/explain/scaling.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr int kMostRanks = 1024;
constexpr double kValueBytes = 2;

double of(std::int64_t value) {
  return static_cast<double>(value);
}

// Bytes that a rank receives when `bytes` are gathered from, or scattered over, `ranks`.
double gathered(double bytes, double ranks) {
  return bytes * (ranks - 1) / ranks;
}

// Return the seconds in which only links work, for gradients' all-reduce and for ZeRO-3. Sums run
// during backward (two thirds of the products), and ZeRO-3's first gather during forward.
double exposed_gradients(double gather_s, double compute_s) {
  return std::max(0.0, 2 * gather_s - 2 * compute_s / 3);
}
double exposed_shards(double gather_s, double compute_s) {
  return std::max(0.0, gather_s - compute_s / 3) + exposed_gradients(gather_s, compute_s);
}

// The seconds that sums of activations over a replica's ranks take: two in each pass of a layer,
// one for the embedding, one for the gradient of what the last product reads.
double activation_sums_s(const ModelConfig& model, double tokens, double ranks, double w) {
  const double sums = 4 * of(model.layers) + 2;
  return sums * 2 * gathered(kValueBytes * tokens * of(model.d_model), ranks) / w;
}

// Returns the sequences of each rank: as many for all, a whole number, and at least one.
double sequences_of_a_rank(const BatchShape& shape, const RankRates& rates) {
  return std::max(1.0, std::floor(of(shape.batch) / rates.ranks));
}

struct Division {
  int replicas = 1, tensor = 1;
};

std::optional<Division> division_of(RankForm form, const ModelConfig& model, int ranks) {
  if (form == RankForm::kTensor) {
    if (model.heads % ranks != 0) return std::nullopt;
    return Division{.tensor = ranks};
  }
  const int tensor = form == RankForm::kMesh ? std::min(ranks, mesh_width(model)) : 1;
  if (ranks % tensor != 0 || model.heads % tensor != 0) return std::nullopt;
  return Division{.replicas = ranks / tensor, .tensor = tensor};
}

std::string column_of(RankForm form) {
  return std::string(word_of(form, {"data", "sharded", "tensor", "mesh"}));
}

struct Bound {
  bool is_weak = false;
  RankForm form = RankForm::kData;
  int hidden_until = 0, half_until = 0, most = 0;
};

Bound bound_of(const ModelConfig& model, const BatchShape& shape, const RankRates& rates,
               RankForm form, bool is_weak) {
  constexpr double kAll = 1 - 1e-9;
  Bound out{.is_weak = is_weak, .form = form};
  for (int n = 1; n <= kMostRanks; ++n) {
    const ScaledStep step = scaled_step(form, model, shape, rates, n, is_weak);
    if (!step.is_possible) continue;
    out.most = n;
    if (step.efficiency() >= kAll) out.hidden_until = n;
    if (step.efficiency() >= 0.5) out.half_until = n;
  }
  return out;
}

std::string kind_of(bool is_weak) {
  return is_weak ? "weak" : "strong";
}

std::string end_of(const Bound& b, const ModelConfig& model, const BatchShape& shape) {
  if (b.most == kMostRanks) return fmt::format("{} ranks looked at", kMostRanks);
  if (b.form == RankForm::kTensor) return fmt::format("{} heads", model.heads);
  return fmt::format("{} sequence{}", shape.batch, shape.batch == 1 ? "" : "s");
}

}  // namespace

double RankRates::over(int span) const {
  return span > kRanksOfHost && between_bytes_per_s > 0 ? between_bytes_per_s : link_bytes_per_s;
}

int mesh_width(const ModelConfig& model) {
  int out = 1;
  while (out < kRanksOfHost && model.heads % (2 * out) == 0) out *= 2;
  return out;
}

ScaledStep scaled_step(RankForm form, const ModelConfig& model, const BatchShape& shape,
                       const RankRates& rates, int ranks, bool is_weak) {
  const std::optional<Division> division = division_of(form, model, ranks);
  if (!division || (!is_weak && shape.batch % division->replicas != 0)) return {};
  const double n = ranks;
  const double replicas = division->replicas, tensor = division->tensor;
  const double sequences = is_weak ? n * sequences_of_a_rank(shape, rates) : of(shape.batch);
  ScaledStep out{.is_possible = true, .tokens = sequences * of(shape.context)};
  out.compute_s = 3 * forward_flops(model, sequences, of(shape.context)) / (n * rates.flops_per_s);
  const double gather_s =
      gathered(kValueBytes * of(parameter_formula(model)) / tensor, replicas) / rates.over(ranks);
  const double sums_s =
      activation_sums_s(model, out.tokens / replicas, tensor, rates.over(division->tensor));
  out.exposed_s = sums_s + (form == RankForm::kData ? exposed_gradients(gather_s, out.compute_s)
                                                    : exposed_shards(gather_s, out.compute_s));
  return out;
}

Table scaling_table(const ModelConfig& model, const BatchShape& shape, const RankRates& rates,
                    bool is_weak) {
  const auto step = [=](int ranks, RankForm form) {
    return scaled_step(form, model, shape, rates, ranks, is_weak);
  };
  Fields<int> fields = {{as_key(col::ranks), [](int ranks) { return Json(ranks); }}};
  for (const RankForm form : kAll<RankForm>) {
    const std::string column = column_of(form);
    fields.add(real_column(column + "_percent", std::string(name_of(form)), "%", 1,
                           "of the step, in which products run"),
               [=](int ranks) {
                 const ScaledStep s = step(ranks, form);
                 return when(s.is_possible, 100 * s.efficiency());
               });
    fields.add(data_only(real_column(column + "_tokens_per_s", {}, "1/s", 0)), [=](int ranks) {
      const ScaledStep s = step(ranks, form);
      return when(s.is_possible, s.tokens_per_s());
    });
  }
  std::vector<int> rows;
  for (int n = 1; n <= kMostRanks; n *= 2) rows.push_back(n);
  Table table = table_of(
      kind_of(is_weak) + "_scaling",
      is_weak ? "Weak scaling: as many tokens for each rank" : "Strong scaling: the batch stays",
      fields, rows);
  const double each = sequences_of_a_rank(shape, rates);
  table.notes.push_back(
      is_weak ? fmt::format("{:g} sequence{} for each rank", each, each == 1 ? "" : "s")
              : fmt::format("a batch of {} sequences, divided evenly", shape.batch));
  table.notes.push_back(fmt::format("sharded × tensor: replicas of {} ranks; a host has {}",
                                    mesh_width(model), kRanksOfHost));
  return table;
}

Table bounds_table(const ModelConfig& model, const BatchShape& shape, const RankRates& rates) {
  using B = const Bound&;
  const Fields<Bound> fields = {
      {as_key(col::kind), [](B b) { return Json(kind_of(b.is_weak)); }},
      {as_key(col::form), [](B b) { return Json(std::string(name_of(b.form))); }},
      {int_column("hidden_until", "links hidden", "ranks, at most"), &Bound::hidden_until},
      {int_column("half_until", "half of the time computed", "ranks, at most"), &Bound::half_until},
      {text_column("end", "ends with"), [&](B b) { return Json(end_of(b, model, shape)); }}};
  std::vector<Bound> rows;
  for (const bool is_weak : {false, true}) {
    for (const RankForm form : kAll<RankForm>) {
      rows.push_back(bound_of(model, shape, rates, form, is_weak));
    }
  }
  return table_of("bounds", "How many ranks pay", fields, rows);
}

}  // namespace tracestep
