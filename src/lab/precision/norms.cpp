// Which step of a normalisation cannot be done in a narrow format, by doing one at a time in it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/half.h"
#include "base/random.h"
#include "lab/precision/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

constexpr std::int64_t kNormRows = 16, kWidth = 1024;
constexpr double kNormEpsilon = 1e-5;

enum class Step { kNone, kMean, kCentre, kSquare, kSum, kEpsilon, kRsqrt, kScale, kAll };

struct NamedStep {
  Step step;
  const char* name;
  bool is_of_layer_norm_alone;
};
constexpr NamedStep kSteps[] = {
    {Step::kNone, "none", false},          {Step::kMean, "mean of x", true},
    {Step::kCentre, "x - mean", true},     {Step::kSquare, "squares", false},
    {Step::kSum, "sum of squares", false}, {Step::kEpsilon, "mean square + 1e-5", false},
    {Step::kRsqrt, "1/sqrt", false},       {Step::kScale, "scaling", false},
    {Step::kAll, "all of them", false}};

// Normalises a row in float32, but rounds one step to the format after every operation.
class Norm {
 public:
  Norm(DType low, Step step, bool centres) : low_(low), step_(step), centres_(centres) {}

  void run(std::span<const float> x, std::span<float> y) const {
    const auto n = static_cast<float>(x.size());
    float mean = 0;
    if (centres_) {
      for (float v : x) mean = in(Step::kMean, mean + v);
      mean = in(Step::kMean, mean / n);
    }
    float sum = 0;
    for (float v : x) {
      const float c = centred(v, mean);
      sum = in(Step::kSum, sum + in(Step::kSquare, c * c));
    }
    const float mean_square = in(Step::kSum, sum / n);
    const float shifted = in(Step::kEpsilon, mean_square + in(Step::kEpsilon, epsilon()));
    const float scale = in(Step::kRsqrt, 1.0f / std::sqrt(in(Step::kRsqrt, shifted)));
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = in(Step::kScale, centred(x[i], mean) * in(Step::kScale, scale));
    }
  }

 private:
  static float epsilon() { return static_cast<float>(kNormEpsilon); }
  float centred(float v, float mean) const { return centres_ ? in(Step::kCentre, v - mean) : v; }
  float in(Step step, float v) const {
    if (step_ != step && step_ != Step::kAll) return v;
    return low_ == DType::kF16 ? to_float(to_f16(v)) : to_float(to_bf16(v));
  }

  DType low_;
  Step step_;
  bool centres_;
};

void exact_norm(std::span<const float> x, std::span<double> y, bool centres) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, sum = 0;
  if (centres) {
    for (float v : x) mean += static_cast<double>(v);
    mean /= n;
  }
  for (float v : x) sum += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  const double scale = 1.0 / std::sqrt(sum / n + kNormEpsilon);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (static_cast<double>(x[i]) - mean) * scale;
}

struct NormError {
  double error = 0;       // of the finite rows: root of the mean square, over that of the result
  double lost_share = 0;  // of rows with a result that is not finite, or all zeros
};

// Measures a norm's error. `scale`: the standard deviation of its inputs, numbers of the format.
NormError measure(DType low, Step step, bool centres, double scale, std::uint64_t seed) {
  const CounterRng rng(seed, "norm inputs");
  std::vector<float> x(kWidth), y(kWidth);
  std::vector<double> exact(kWidth);
  double error = 0, size = 0;
  std::int64_t lost = 0;
  for (std::int64_t row = 0; row < kNormRows; ++row) {
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const auto v =
          static_cast<float>(scale * rng.normal(static_cast<std::uint64_t>(row * kWidth + i)));
      x[static_cast<std::size_t>(i)] =
          low == DType::kF16 ? to_float(to_f16(v)) : to_float(to_bf16(v));
    }
    Norm(low, step, centres).run(x, y);
    exact_norm(x, exact, centres);
    const bool is_finite = std::ranges::all_of(y, [](float v) { return std::isfinite(v); });
    const bool is_zero = std::ranges::all_of(y, [](float v) { return v == 0.0f; });
    if (!is_finite || is_zero) {
      ++lost;
      continue;
    }
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double d = static_cast<double>(y[i]) - exact[i];
      error += d * d;
      size += exact[i] * exact[i];
    }
  }
  return {size > 0 ? std::sqrt(error / size) : std::nan(""),
          static_cast<double>(lost) / static_cast<double>(kNormRows)};
}

struct NormRow {
  bool centres;
  DType low;
  double scale;
  const char* step;
  NormError e;

  double half_spacing() const { return low == DType::kF16 ? 0x1p-11 : 0x1p-8; }
  std::string verdict() const {
    if (e.lost_share > 0) return "lost: overflow to infinity, or all zeros";
    if (e.error > 4 * half_spacing()) return "sensitive: more than four roundings of the result";
    return e.error > 0.05 * half_spacing() ? "a rounding" : "exact enough";
  }
};

Fields<NormRow> norm_fields() {
  using R = const NormRow&;
  return {
      {as_key(text_column("norm")), [](R r) { return r.centres ? "layer norm" : "RMS norm"; }},
      {as_key(col::format), [](R r) { return name_of(r.low); }},
      {as_key(real_column("input_scale", "inputs", "", -1, "their standard deviation")),
       &NormRow::scale},
      {as_key(text_column("step", "step in the format")), &NormRow::step},
      {as_exact(with_digits(-1, col::error("against float64, relative"))),
       [](R r) { return finite_or_null(r.e.error); }},
      {real_column("roundings", "in roundings", "", 2, "error over half the format's spacing at 1"),
       [](R r) { return finite_or_null(r.e.error / r.half_spacing()); }},
      {real_column("lost_percent", "rows lost", "%", 0,
                   "with infinities, NaN or nothing but zeros"),
       [](R r) { return 100.0 * r.e.lost_share; }},
      {col::verdict, &NormRow::verdict}};
}

}  // namespace

std::vector<Column> norm_columns() {
  return norm_fields().columns();
}

Table norm_table(std::uint64_t seed) {
  std::vector<NormRow> rows;
  for (bool centres : {false, true}) {
    for (DType low : {DType::kF16, DType::kBF16}) {
      for (double scale : {1.0, 1000.0, 1e-3}) {
        for (const NamedStep& s : kSteps) {
          if (s.is_of_layer_norm_alone && !centres) continue;
          rows.push_back({centres, low, scale, s.name, measure(low, s.step, centres, scale, seed)});
        }
      }
    }
  }
  Table table =
      table_of("norms", "Normalisation with one step in a narrow format", norm_fields(), rows);
  // The error of a long sum of squares of inputs of 1 in a layer norm, in half spacings.
  const auto sum_at_one = [&](DType low) {
    const auto found = std::ranges::find_if(rows, [&](const NormRow& r) {
      return r.centres && r.low == low && r.scale == 1.0 &&
             std::string_view(r.step) == "sum of squares";
    });
    return found->e.error / found->half_spacing();
  };
  table.notes = {
      fmt::format("{} rows of {} normal numbers in the format; every operation of the step is "
                  "rounded to the format, sums one by one; the rest is float32",
                  kNormRows, kWidth),
      fmt::format("float16 has neither the bits for a long sum nor the range: the sum of squares "
                  "of inputs of 1 alone is off by {:.1f} roundings of the result, squares of "
                  "inputs beyond 255.875 are infinite, and 1e-5 is below its normal numbers; "
                  "bfloat16 has the range, and fewer bits: {:.1f} of its roundings. So both norms "
                  "run in float32 under either",
                  sum_at_one(DType::kF16), sum_at_one(DType::kBF16))};
  return table;
}

}  // namespace tracestep
