// Fits how the bytes of attention grow with the context: a quadratic through cells of one kind.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/attention/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// Solves the symmetric 3 × 3 system m x = y by elimination with pivoting.
std::array<double, 3> solve(std::array<std::array<double, 3>, 3> m, std::array<double, 3> y) {
  for (std::size_t i = 0; i < 3; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i + 1; r < 3; ++r) {
      if (std::abs(m[r][i]) > std::abs(m[pivot][i])) pivot = r;
    }
    std::swap(m[i], m[pivot]);
    std::swap(y[i], y[pivot]);
    for (std::size_t r = i + 1; r < 3; ++r) {
      const double factor = m[r][i] / m[i][i];
      for (std::size_t c = i; c < 3; ++c) m[r][c] -= factor * m[i][c];
      y[r] -= factor * y[i];
    }
  }
  std::array<double, 3> x{};
  for (std::size_t i = 3; i-- > 0;) {
    x[i] = y[i];
    for (std::size_t c = i + 1; c < 3; ++c) x[i] -= m[i][c] * x[c];
    x[i] /= m[i][i];
  }
  return x;
}

}  // namespace

QuadraticFit fit_quadratic(std::span<const double> s, std::span<const double> values) {
  TRACESTEP_CHECK(s.size() == values.size() && std::set<double>(s.begin(), s.end()).size() >= 3,
                  "a quadratic through {} points", s.size());
  // Abscissas are in units of the largest, so that their powers stay near one.
  const double scale = *std::ranges::max_element(s);
  std::array<std::array<double, 3>, 3> m{};
  std::array<double, 3> y{};
  for (std::size_t i = 0; i < s.size(); ++i) {
    const double t = s[i] / scale;
    const std::array<double, 3> powers = {t * t, t, 1};
    for (std::size_t r = 0; r < 3; ++r) {
      y[r] += powers[r] * values[i];
      for (std::size_t c = 0; c < 3; ++c) m[r][c] += powers[r] * powers[c];
    }
  }
  const std::array<double, 3> x = solve(m, y);
  QuadraticFit fit{x[0] / (scale * scale), x[1] / scale, x[2]};
  for (std::size_t i = 0; i < s.size(); ++i) {
    const double at = (fit.a * s[i] + fit.b) * s[i] + fit.c;
    fit.largest_error = std::max(fit.largest_error, std::abs(at - values[i]) / values[i]);
  }
  return fit;
}

namespace {

using Cells = std::vector<const AttentionResult*>;

// Cells that differ in their contexts only, and the fits through them.
struct Scaling {
  const Cells& cells;
  std::int64_t points;
  QuadraticFit held, peak;  // before backward, and the peak

  // The bytes of one tensor of B·H·T², divided by T².
  double one() const { return square_bytes(spec()); }
  const AttentionSpec& spec() const { return cells.front()->spec; }
  Json keys() const {
    Json out = Json::array();
    for (const AttentionResult* r : cells) out.push_back(key_of(r->spec));
    return out;
  }
};

Fields<Scaling> scaling_fields() {
  using S = const Scaling&;
  return {
      {col::batch, [](S s) { return s.spec().run.shape.batch; }},
      {data_only(col::heads.titled("")), [](S s) { return s.spec().heads; }},
      {col::width, [](S s) { return s.spec().width; }},
      {col::causal, [](S s) { return s.spec().causal; }},
      {col::attention, [](S s) { return name_of(s.spec().run.attention); }},
      {col::saved, [](S s) { return saved_name(s.spec()); }},
      {col::precision, [](S s) { return name_of(s.spec().run.precision); }},
      {int_column("points", "", "contexts that ran"), &Scaling::points},
      {real_column("bytes_per_t2", "a", "bytes / T²", 3, "before backward"),
       [](S s) { return s.held.a; }},
      {real_column("tensors", "tensors of T²", "", 3, "a over the bytes of one: B elements per T²"),
       [](S s) { return s.held.a / s.one(); }},
      {real_column("bytes_per_t", "b", "bytes / T", 1), [](S s) { return s.held.b; }},
      {real_column("largest_error_percent", "error", "%", 4,
                   "largest difference between fit and bytes"),
       [](S s) { return 100 * s.held.largest_error; }},
      {real_column("peak_bytes_per_t2", "a of the peak", "bytes / T²", 3),
       [](S s) { return s.peak.a; }},
      {real_column("peak_tensors", "in peak", "", 3), [](S s) { return s.peak.a / s.one(); }},
      {data_only(col::cell("all parameters of the cells")), &Scaling::keys}};
}

// Fits how memory grows with the context; nullopt: there are fewer than three contexts.
std::optional<Scaling> scaling_of(const Cells& cells) {
  std::vector<double> s, held, peak;
  for (const AttentionResult* r : cells) {
    s.push_back(static_cast<double>(r->spec.run.shape.context));
    held.push_back(static_cast<double>(r->before_backward_bytes));
    peak.push_back(static_cast<double>(r->peak_bytes));
  }
  if (std::set<double>(s.begin(), s.end()).size() < 3) return std::nullopt;
  // Byte counts are whole numbers: a quadratic part of less than one byte is rounding.
  const double longest = *std::ranges::max_element(s);
  const auto fit = [&](const std::vector<double>& bytes) {
    QuadraticFit out = fit_quadratic(s, bytes);
    if (std::abs(out.a) * longest * longest < 1) out.a = 0;
    return out;
  };
  return Scaling{cells, std::ssize(cells), fit(held), fit(peak)};
}

// Works out the bytes per T² at the longest context, in words.
std::string worked(const Cells& cells) {
  const AttentionResult& last = **std::ranges::max_element(
      cells, {}, [](const AttentionResult* r) { return r->spec.run.shape.context; });
  const AttentionSpec& spec = cells.front()->spec;
  const auto largest = static_cast<double>(last.spec.run.shape.context);
  const auto bytes = static_cast<double>(last.before_backward_bytes);
  const double one = square_bytes(spec);
  return fmt::format(
      "{}: {:.2f} MiB / {}² = {:.0f} / {:.0f} = {:.2f} bytes per T², with what grows by T alone; "
      "one tensor of T² is {}·{} = {} bytes per T²",
      label_of(spec), bytes / kMiB, last.spec.run.shape.context, bytes, largest * largest,
      bytes / (largest * largest), spec.heads == 1 ? "B" : "B·H",
      one / static_cast<double>(spec.run.shape.batch * spec.heads), one);
}

}  // namespace

Table attention_scaling_table(std::span<const AttentionResult> results) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, std::string, std::string>;
  std::map<Key, Cells> groups;
  for (const AttentionResult& r : results) {
    if (r.status != Status::kOk) continue;
    groups[{r.spec.run.shape.batch, r.spec.heads, r.spec.width, r.spec.causal, saved_name(r.spec),
            name_of(r.spec.run.precision)}]
        .push_back(&r);
  }
  const Fields<Scaling> fields = scaling_fields();
  Table table{.name = "attention_scaling",
              .title = "How the bytes grow with the context T: a·T² + b·T + c",
              .columns = fields.columns()};
  for (const auto& [key, cells] : groups) {
    const std::optional<Scaling> scaling = scaling_of(cells);
    if (!scaling) continue;
    table.add_row(fields.row(*scaling));
    table.notes.push_back(worked(cells));
  }
  show_heads(table);
  return table;
}

}  // namespace tracestep
