#include "lab/report/chart/chart.h"

#include <algorithm>

#include "base/error.h"
#include "lab/report/chart/chart_rows.h"
#include "lab/report/chart/drawings.h"

namespace tracestep {
namespace {

struct Kind {
  std::string_view name;
  std::string (*draw)(const Chart&, std::span<const Table>, const ChartLook&);
  std::vector<std::string> columns;  // read without being named in the options
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"lines", draw_lines, {}},
      {"bars", draw_bars, {}},
      {"roofline", draw_roofline, {"flops", "bytes", "ms", "op", "component", "share_percent"}},
      {"timeline", draw_timeline, {"phase", "total_bytes"}}};
  return all;
}

const Kind& kind_of(const Chart& chart) {
  const auto found = std::ranges::find(kinds(), chart.kind, &Kind::name);
  TRACESTEP_CHECK(found != kinds().end(), "there is no chart of kind {}", chart.kind);
  return *found;
}

}  // namespace

std::string label_of(const Chart& chart) {
  const std::size_t at = chart.table.find('@');
  return at == std::string::npos ? "" : chart.table.substr(at + 1);
}

std::string caption_of(const Chart& chart, std::span<const Table> tables) {
  const auto table = std::ranges::find(tables, chart.table, &Table::name);
  if (table == tables.end()) return label_of(chart);
  const ChartRows rows(chart, tables, chart.table);
  std::vector<std::string> values = names_of(chart, "values");
  if (values.empty()) values = names_of(chart, "y");
  std::string out = values.empty() ? "" : name_of_all(values, rows.column(values.front()));
  if (!table->title.empty()) out += (out.empty() ? "" : ": ") + table->title;
  const std::string label = label_of(chart);
  if (out.find(label) == std::string::npos) out += (out.empty() ? "" : ", ") + label;
  return out;
}

std::vector<std::string> chart_columns(const Chart& chart) {
  std::vector<std::string> out = kind_of(chart).columns;
  for (const char* option : {"x", "list", "stack", "over", "y", "series", "label", "values"}) {
    for (std::string& name : names_of(chart, option)) out.push_back(std::move(name));
  }
  if (const Json* ranges = chart.options.find("range")) {
    for (const auto& [column, bounds] : ranges->members()) {
      for (const Json& name : bounds.items()) out.push_back(name.as_string());
    }
  }
  return out;
}

std::string draw_chart(const Chart& chart, std::span<const Table> tables, const ChartLook& look) {
  return kind_of(chart).draw(chart, tables, look);
}

}  // namespace tracestep
