#include "lab/pages/figures.h"

#include <cmath>
#include <utility>

#include "lab/report/known_columns.h"

namespace tracestep::pages {
namespace {

std::string_view symbol_of(std::string_view unit) {
  if (unit == "bytes") return "B";
  if (unit == "ms") return "ms";
  if (unit == "flops") return "FLOP";
  if (unit == "tflops") return "TFLOP/s";
  if (unit == "percent" || unit == "%") return "%";
  return "";
}

// Writes a formula as people do: "8·B·T·C²".
std::string in_print(std::string_view formula) {
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"*", "·"}, {"^2", "²"}, {"^0.5", "^½"}, {" - ", " − "}};
  std::string out(formula);
  for (const auto& [sign, printed] : kSigns) {
    for (std::size_t at = out.find(sign); at != std::string::npos;
         at = out.find(sign, at + printed.size())) {
      out.replace(at, sign.size(), printed);
    }
  }
  return out;
}

}  // namespace

Table figure_table(std::string name) {
  return {.name = std::move(name),
          .columns = {col::what, to_copy(col::formula), col::numbers, text_column("shown", "value"),
                      data_only(real_column("value", "", "", -1)), data_only(col::unit)}};
}

Quantity add_figure(Table& table, const Figure& figure, const Scope& scope) {
  const Evaluated found = evaluate(figure.formula, scope);
  const bool is_given = figure.formula == figure.name;
  const double number = found.quantity.value;
  const std::string value =
      figure.unit == "count" ? plain_number(number) : shown(found.quantity, figure.unit).words();
  table.add_row({filled(figure.what, scope),
                 is_given ? filled(figure.made, scope) : in_print(figure.formula),
                 is_given ? std::string() : in_print(found.numbers), value,
                 std::isfinite(number) ? number : 0.0,  // data formats have no infinity
                 symbol_of(figure.unit)});
  return found.quantity;
}

std::string filled(std::string_view text, const Scope& scope) {
  const Template parts = template_of(text);
  std::string out = parts.plain[0];
  for (std::size_t i = 0; i < parts.places.size(); ++i) {
    const Placeholder& place = parts.places[i];
    const auto word = scope.word ? scope.word(place.name) : std::optional<std::string>();
    const std::string_view unit = place.spec.empty() ? "count" : std::string_view(place.spec);
    out += word ? *word : shown(evaluate(place.name, scope).quantity, unit).words();
    out += parts.plain[i + 1];
  }
  return out;
}

}  // namespace tracestep::pages
