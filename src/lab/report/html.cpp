#include "lab/report/html.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/report/web.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr std::string_view kReportOpens = "<script type=\"application/json\" id=\"report\">";
constexpr std::string_view kScriptCloses = "</script>";

// In JSON "<" occurs only in strings; escaped, no string can end the surrounding script element.
std::string for_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string for_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

const char* name_of(ColumnKind kind) {
  switch (kind) {
    case ColumnKind::kText: return "text";
    case ColumnKind::kInt: return "int";
    case ColumnKind::kReal: return "real";
    case ColumnKind::kBytes: return "bytes";
    case ColumnKind::kBool: return "bool";
    case ColumnKind::kReals: return "reals";
    case ColumnKind::kStructured: return "structured";
  }
  return "text";
}

Json layout_of(const Table& table, std::size_t index) {
  const Column& column = table.columns[index];
  Json out = Json::Object{{"name", column.name}, {"kind", name_of(column.kind)}};
  if (!column.title.empty()) out["title"] = column.title;
  if (!column.unit.empty()) out["unit"] = column.unit;
  if (column.digits >= 0) out["digits"] = column.digits;
  if (!column.description.empty()) out["description"] = column.description;
  if (!is_shown(table, index)) out["hidden"] = true;
  return out;
}

Json layout_of(const Chart& chart) {
  Json out = chart.options;
  out["kind"] = chart.kind;
  out["title"] = chart.title;
  out["table"] = chart.table;
  return out;
}

// The layout of the page, without any figures.
Json layout_of(std::span<const Table> tables, std::span<const PageSection> sections) {
  Json out = Json::Object{{"tables", Json::object()}, {"sections", Json::array()}};
  for (const Table& table : tables) {
    Json columns = Json::array();
    for (std::size_t c = 0; c < table.columns.size(); ++c) columns.push_back(layout_of(table, c));
    out["tables"][table.name] = Json::Object{{"columns", std::move(columns)}};
  }
  for (const PageSection& section : sections) {
    Json names = Json::array(), charts = Json::array();
    for (const std::string& name : section.tables) names.push_back(name);
    for (const Chart& chart : section.charts) charts.push_back(layout_of(chart));
    out["sections"].push_back(Json::Object{
        {"id", section.id}, {"tables", std::move(names)}, {"charts", std::move(charts)}});
  }
  return out;
}

}  // namespace

std::vector<std::string> chart_columns(const Chart& chart) {
  std::vector<std::string> out;
  for (const char* option : {"x", "list", "stack", "y", "series", "label", "values"}) {
    const Json* value = chart.options.find(option);
    if (value == nullptr) continue;
    if (value->is_string()) out.push_back(value->as_string());
    if (value->is_array()) {
      for (const Json& name : value->items()) out.push_back(name.as_string());
    }
  }
  if (chart.kind == "roofline") {
    out.insert(out.end(), {"flops", "bytes", "ms", "op", "component", "share_percent"});
  }
  if (chart.kind == "timeline") {
    out.insert(out.end(), {"phase", "path", "op", "time_ms", "total_bytes", "measured_bytes"});
  }
  return out;
}

std::string html_page(std::string_view title, std::string_view json, std::span<const Table> tables,
                      std::span<const PageSection> sections) {
  // A policy that forbids every request: what the page shows is what it carries.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
      "<title>{0}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{1}</style>\n</head>\n"
      "<body>\n<div id=\"frame\">\n<nav aria-label=\"Contents\"><div "
      "class=\"title\">{0}</div></nav>\n"
      "<main>\n<h1>{0}</h1>\n"
      "<p class=\"soft\">Written by tracestep. Everything here is drawn from the numbers that this "
      "file carries; it asks nothing of the network. <button type=\"button\" id=\"json\">all "
      "numbers "
      "as JSON</button> <button type=\"button\" id=\"theme\">light or dark</button></p>\n"
      "<noscript><p>The tables and charts are drawn by a script in this file; the same numbers "
      "stand "
      "in study.json and study.md beside it.</p></noscript>\n</main>\n</div>\n"
      "<div id=\"tip\" role=\"status\"></div>\n{2}{3}{4}\n"
      "<script type=\"application/json\" id=\"layout\">{5}{4}\n"
      "<script>\n{6}{7}{8}build();\n{4}\n</body>\n</html>\n",
      for_html(title), web::kPageCss, kReportOpens, for_script(json), kScriptCloses,
      for_script(layout_of(tables, sections).dump()), web::kPageJs, web::kChartsJs,
      web::kTimelineJs);
}

std::string json_of_page(std::string_view html, const std::string& where) {
  const std::size_t begin = html.find(kReportOpens);
  const std::size_t end = begin == std::string_view::npos ? begin : html.find(kScriptCloses, begin);
  if (end == std::string_view::npos) {
    throw Error(ErrorCode::kInput, where, "there is no report in it",
                "give a study.html as `tracestep study` writes it");
  }
  return std::string(html.substr(begin + kReportOpens.size(), end - begin - kReportOpens.size()));
}

}  // namespace tracestep
