#include "lab/report/html.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include <fmt/format.h>

#include "base/own_file.h"
#include "embedded/web.h"
#include "lab/report/chart/svg.h"
#include "lab/report/gzip.h"
#include "lab/report/prose.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr std::string_view kScriptCloses = "</script>";

// In lines of 96 characters (RFC 4648).
std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kLine = 72;  // bytes
  std::string out;
  out.reserve(bytes.size() * 4 / 3 + bytes.size() / kLine + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    if (i % kLine == 0) out += '\n';
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;  // three bytes as four digits of six bits
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= count ? kDigits[(group >> (18 - 6 * k)) & 63u] : '=';
    }
  }
  return out;
}

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

// The part of an address that names a section or a table; page.js makes the same.
std::string anchor(std::string_view name) {
  std::string out;
  for (char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    if (is_plain) {
      out += c;
    } else if (!out.ends_with('-')) {
      out += '-';
    }
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

// How columns are shown, without any figures.
Json layout_of(std::span<const Table> tables) {
  Json out = Json::Object{{"tables", Json::object()}};
  for (const Table& table : tables) {
    Json columns = Json::array();
    for (std::size_t c = 0; c < table.columns.size(); ++c) columns.push_back(layout_of(table, c));
    out["tables"][table.name] = Json::Object{{"columns", std::move(columns)}};
  }
  return out;
}

// --- text
// ------------------------------------------------------------------------------------------

std::string prose(std::string_view text) {
  std::string out;
  for (const Paragraph& part : paragraphs_of(text)) {
    const char* const tag = part.is_code ? "pre" : "p";
    out += fmt::format("<{0}>{1}</{0}>\n", tag, xml_escaped(part.text));
  }
  return out;
}

// A figure, a comparison or a quotation shows its formula when it is pointed at.
std::string sentence(const Text& text) {
  std::string out;
  for (const Piece& piece : text.pieces()) {
    out += piece.formula.empty()
               ? xml_escaped(piece.words)
               : fmt::format("<span class=\"claim\" title=\"{}\">{}</span>",
                             xml_escaped(piece.formula), xml_escaped(piece.words));
  }
  return out;
}

std::string sentences(std::string_view title, std::span<const Text> texts) {
  if (texts.empty()) return {};
  std::string out = fmt::format("<h2>{}</h2>\n<ul>\n", title);
  for (const Text& text : texts) out += fmt::format("<li>{}</li>\n", sentence(text));
  return out + "</ul>\n";
}

// --- charts and tables
// -----------------------------------------------------------------------------

// Of the tables and charts so far, where "largest@A" and "largest@B" are of one kind: paper has the
// first of each.
using Kinds = std::set<std::string>;

bool is_first_of_kind(const std::string& table, const std::string& title, Kinds& kinds) {
  return kinds.insert(table.substr(0, table.find('@')) + '\n' + title).second;
}

// Two drawings, of which a page's width shows one; nothing when there is nothing to draw.
std::string figure(const Chart& chart, std::span<const Table> tables, Kinds& kinds) {
  const std::string wide = draw_chart(chart, tables);
  if (wide.empty()) return {};
  return fmt::format(
      "<figure{} data-kind=\"{}\" data-table=\"{}\">\n<figcaption><span>{}</span>"
      "<span class=\"tools\"></span></figcaption>\n<div class=\"wide\">{}</div>\n"
      "<div class=\"narrow\">{}</div>\n</figure>\n",
      is_first_of_kind(chart.table, chart.title, kinds) ? "" : " class=\"again\"", chart.kind,
      xml_escaped(chart.table), xml_escaped(chart.title), wide,
      draw_chart(chart, tables, {.width = kNarrowChart}));
}

std::string figures(std::span<const Chart> charts, std::span<const Table> tables, Kinds& kinds) {
  std::string out;
  for (const Chart& chart : charts) out += figure(chart, tables, kinds);
  return out.empty() ? out : "<div class=\"figures\">\n" + out + "</div>\n";
}

// Places that the page's script fills.
std::string table_places(std::span<const std::string> names, Kinds& kinds) {
  std::string out;
  for (const std::string& name : names) {
    const bool is_first = is_first_of_kind(name, "", kinds);
    out += fmt::format("<div class=\"place{}\" data-table=\"{}\"></div>\n",
                       is_first ? "" : " again", xml_escaped(name));
  }
  return out;
}

std::string section_html(const PageSection& section, std::span<const Table> tables, Kinds& kinds) {
  std::string out = fmt::format("<section id=\"section-{}\">\n<h2>{}</h2>\n", anchor(section.id),
                                xml_escaped(section.title));
  out += prose(section.reading) + figures(section.charts, tables, kinds) +
         table_places(section.tables, kinds);
  for (const std::string& name : section.data) {
    const auto table = std::ranges::find(tables, name, &Table::name);
    if (table == tables.end()) continue;
    out += fmt::format("<details class=\"data\"><summary>{} ({} rows)</summary>\n{}</details>\n",
                       xml_escaped(table->title.empty() ? name : table->title), table->rows.size(),
                       table_places({&name, 1}, kinds));
  }
  return out + "</section>\n";
}

std::string head_html(const PageHead& head, std::span<const Table> tables) {
  std::string facts;
  Kinds kinds;
  for (const auto& [name, value] : head.facts) {
    facts +=
        fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", xml_escaped(name), xml_escaped(value));
  }
  return fmt::format(
      "<header>\n<h1>{}</h1>\n<dl class=\"facts\">\n{}</dl>\n<div class=\"head\">\n<div>{}"
      "</div>\n<div>{}</div>\n</div>\n{}</header>\n",
      xml_escaped(head.title), facts, sentences("Results", head.results),
      sentences("How far to trust them", head.trust), figures(head.charts, tables, kinds));
}

std::string contents(const PageHead& head, std::span<const PageSection> sections) {
  std::string out = fmt::format(
      "<nav aria-label=\"Contents\"><div class=\"title\">{}</div>\n"
      "<a href=\"#answers\">Questions and answers</a>\n",
      xml_escaped(head.title));
  for (const PageSection& section : sections) {
    out += fmt::format("<a href=\"#section-{}\">{}</a>\n", anchor(section.id),
                       xml_escaped(section.title));
  }
  return out + "<a href=\"#environment\">Where this was measured</a>\n</nav>\n";
}

}  // namespace

std::string html_page(const PageHead& head, std::string_view json, std::span<const Table> tables,
                      std::span<const PageSection> sections) {
  std::string body;
  Kinds kinds;
  for (const PageSection& section : sections) body += section_html(section, tables, kinds);
  // A policy that forbids every request: what the page shows is what it carries.
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"generator\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
      "<title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n",
      kGeneratorName, xml_escaped(head.title), web::kPageCss);
  out += "<body>\n<div id=\"frame\">\n" + contents(head, sections) + "<main>\n" +
         head_html(head, tables);
  out +=
      "<p class=\"soft tools\"><button type=\"button\" id=\"json\">all numbers as JSON</button> "
      "<button type=\"button\" id=\"theme\">light or dark</button></p>\n"
      "<noscript><p>Tables and answers are laid out by a script in this file; the same numbers "
      "stand in study.json and study.md beside it.</p></noscript>\n"
      "<p class=\"paper soft\">On paper longer tables, and tables and charts of further steps, are "
      "left "
      "out: this page has them on the screen, and study.json in full.</p>\n<section "
      "id=\"answers\"></section>\n";
  out += body + "<section id=\"environment\"></section>\n</main>\n</div>\n";
  // Scripts end in front of any text of the run: base64 and for_script() leave no "<" in it.
  for (const std::string& part :
       {std::string("<div id=\"tip\" role=\"status\"></div>\n"),
        std::string("<script type=\"text/plain\" id=\"report\">"), base64(gzip(json)),
        std::string(kScriptCloses),
        std::string("\n<script type=\"application/json\" id=\"layout\">"),
        for_script(layout_of(tables).dump()), std::string(kScriptCloses),
        std::string("\n<script>\n"), std::string(web::kPageJs), std::string(web::kChartsJs),
        std::string("const built = build();\n"), std::string(kScriptCloses),
        std::string("\n</body>\n</html>\n")}) {
    out += part;
  }
  return out;
}

}  // namespace tracestep
