#include "lab/report/html.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/ranges.h>

#include "base/own_file.h"
#include "embedded/web.h"
#include "lab/report/by_column.h"
#include "lab/report/chart/svg.h"
#include "lab/report/gzip.h"
#include "lab/report/prose.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

// Encodes bytes as Base64 in lines of 96 characters (RFC 4648).
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

std::string bytes_of_base64(std::string_view text) {
  std::array<int, 256> values{};
  values.fill(-1);
  int next = 0;
  for (const auto& [first, last] : {std::pair('A', 'Z'), {'a', 'z'}, {'0', '9'}}) {
    for (int c = first; c <= last; ++c) values[static_cast<std::size_t>(c)] = next++;
  }
  values['+'] = 62;
  values['/'] = 63;
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (unsigned char c : text) {
    if (values[c] < 0) continue;  // a line's end
    bits = bits << 6 | static_cast<std::uint32_t>(values[c]);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255u);
  }
  return out;
}

// Makes the part of an address that names a section or a table; page.js makes the same.
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

// --- text ---------------------------------------------------------------------------------------

// Escapes a text for the page, where no line ends inside a flag, nor between it and its value.
std::string with_whole_flags(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool is_flag = text.substr(at).starts_with("--") && (at == 0 || text[at - 1] == ' ');
    if (!is_flag) {
      const std::size_t next = std::min(text.find(" --", at), text.size() - 1) + 1;
      out += xml_escaped(text.substr(at, next - at));
      at = next;
      continue;
    }
    std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const bool has_value = end + 1 < text.size() && text[end] == ' ' && text[end + 1] != '-';
    if (has_value) end = std::min(text.find_first_of(" \n", end + 1), text.size());
    out += fmt::format("<span class=\"flag\">{}</span>", xml_escaped(text.substr(at, end - at)));
    at = end;
  }
  return out;
}

std::string prose(std::string_view text) {
  std::string out;
  for (const Paragraph& part : paragraphs_of(text)) {
    const char* const tag = part.is_code ? "pre" : "p";
    out += fmt::format("<{0}>{1}</{0}>\n", tag, with_whole_flags(part.text));
  }
  return out;
}

// Writes a text whose figures, comparisons and quotations show their formulas at the pointer.
std::string sentence(const Text& text) {
  std::string out;
  for (const Piece& piece : text.pieces()) {
    out += piece.formula.empty()
               ? with_whole_flags(piece.words)
               : fmt::format("<span class=\"claim\" title=\"{}\">{}</span>",
                             xml_escaped(piece.formula), with_whole_flags(piece.words));
  }
  return out;
}

// --- charts -------------------------------------------------------------------------------------

// Makes the place in which the page's script draws a kWorkChart from thousands of rows.
std::string work_figure(const Chart& chart) {
  return fmt::format(
      "<figure data-kind=\"{}\" data-table=\"{}\">\n<figcaption "
      "class=\"soft\">{}</figcaption>\n<div "
      "class=\"tools\"></div>\n<canvas role=\"img\" aria-label=\"{}\"></canvas>\n<noscript><p>A "
      "script "
      "in this file draws it.</p></noscript>\n</figure>\n",
      chart.kind, xml_escaped(chart.table),
      "Along time: passes, the modules in each other, and the kernels below.",
      xml_escaped(chart.title));
}

// Draws a chart in two widths, of which a page shows the one that fits; empty: nothing to draw.
std::string figure(const Chart& chart, std::span<const Table> tables) {
  if (chart.kind == kWorkChart) return work_figure(chart);
  const std::string wide = draw_chart(chart, tables), what = caption_of(chart, tables);
  if (wide.empty()) return {};
  const std::string caption =
      what.empty() ? ""
                   : fmt::format("<figcaption class=\"soft\">{}</figcaption>", xml_escaped(what));
  return fmt::format(
      "<figure data-kind=\"{}\" data-table=\"{}\">\n{}<div class=\"tools\"></div>\n<div "
      "class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n</figure>\n",
      chart.kind, xml_escaped(chart.table), caption, wide,
      draw_chart(chart, tables, {.width = kNarrowChart}));
}

std::string figures(std::span<const Chart> charts, std::span<const Table> tables) {
  std::string out;
  for (const Chart& chart : charts) out += figure(chart, tables);
  return out;
}

// --- answers ------------------------------------------------------------------------------------
// Writes an answer's small table, whose first line is the head.
std::string lines_html(const std::vector<std::vector<Text>>& lines) {
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* const cell = i == 0 ? "th" : "td";
    out += i == 0 ? "<thead><tr>" : "<tr>";
    for (const Text& text : lines[i]) out += fmt::format("<{0}>{1}</{0}>", cell, sentence(text));
    out += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  if (out.empty()) return out;
  return fmt::format("<div class=\"scroll\" tabindex=\"0\"><table>{}</tbody></table></div>\n", out);
}

// Writes links that unfold tables and mark rows in them: "cells 1, 4".
std::string links_to(std::span<const RowRef> rows) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> by_table;
  for (const RowRef& ref : rows) {
    const auto found =
        std::ranges::find(by_table, ref.table, [](const auto& t) { return t.first; });
    auto& list = found == by_table.end()
                     ? by_table.emplace_back(ref.table, std::vector<std::size_t>{})
                     : *found;
    list.second.push_back(ref.row);
  }
  std::string out;
  for (const auto& [table, list] : by_table) {
    out += fmt::format("<a href=\"#table-{}\" data-table=\"{}\" data-rows=\"{}\">{}</a>\n",
                       anchor(table), xml_escaped(table), fmt::join(list, ","), xml_escaped(table));
  }
  return out;
}

const char* sign_of(const PageCard& card) {
  if (card.standing == "sound") return "";
  return card.standing == "impossible" ? "✗" : card.standing == "refused" ? "–" : "~";
}

// Writes the sign of how far rows can be trusted, with the reason at the pointer; empty: sound.
std::string mark(const PageCard& card) {
  if (card.standing == "sound") return {};
  const std::string css = card.standing == "refused" ? "refused" : anchor(card.standing);
  return fmt::format("<span class=\"mark {}\" title=\"{}\">{} {}</span>", css,
                     xml_escaped(card.doubt.empty() ? card.standing : card.doubt), sign_of(card),
                     card.standing == "refused" ? "no answer" : card.standing);
}

std::string items_html(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) {
    out += fmt::format("<li>{}</li>\n", with_whole_flags(item));
  }
  return out.empty() ? out : "<ol>\n" + out + "</ol>\n";
}

std::string command_html(const std::string& command) {
  return fmt::format("<pre class=\"command\">{}</pre>\n", with_whole_flags(command));
}

std::string card_html(const PageCard& card, std::span<const Table> tables) {
  std::string out = fmt::format(
      "<article class=\"card {}\" id=\"answer-{}\">\n{}<h3>{}{}</h3>\n<p class=\"lead\">{}</p>\n",
      anchor(card.standing), card.id, mark(card),
      card.number.empty() ? "" : fmt::format("<span class=\"number\">{}</span>", card.number),
      xml_escaped(card.question), sentence(card.lead));
  out += items_html(card.items);
  out += figures(card.charts, tables);
  const bool has_more = !card.more.empty() || !card.lines.empty() || !card.doubt.empty() ||
                        !card.rows.empty() || !card.command.empty();
  if (!has_more) return out + "</article>\n";
  out += "<details><summary>more</summary>\n<div class=\"more\">\n";
  if (!card.more.empty()) out += fmt::format("<p>{}</p>\n", sentence(card.more));
  out += lines_html(card.lines);
  if (!card.doubt.empty()) out += fmt::format("<p>{}</p>\n", xml_escaped(card.doubt));
  if (!card.rows.empty()) {
    out += fmt::format("<p class=\"soft rests\">Rows: {}</p>\n", links_to(card.rows));
  }
  return out + command_html(card.command) + "</div>\n</details>\n</article>\n";
}

std::string topic_html(const PageTopic& topic, std::span<const Table> tables) {
  std::string out = fmt::format("<section id=\"section-{}\">\n<h2>{}</h2>\n", anchor(topic.title),
                                xml_escaped(topic.title));
  std::string extra;
  std::size_t extras = 0;
  for (const PageCard& card : topic.cards) {
    (card.is_extra ? extra : out) += card_html(card, tables);
    extras += card.is_extra ? 1 : 0;
  }
  if (extras > 0) {
    out += fmt::format(
        "<details class=\"further\"><summary>{} more answer{}</summary>\n{}</details>\n", extras,
        extras == 1 ? "" : "s", extra);
  }
  return out + "</section>\n";
}

// --- the first screen ---------------------------------------------------------------------------
// Writes a tile: a short question, and its answer in large letters.
std::string tile_html(const PageCard& tile) {
  return fmt::format(
      "<div class=\"tile\">{}<div class=\"soft\">{}</div><div class=\"big\">{}</div><div "
      "class=\"small\">{}</div></div>\n",
      mark(tile), xml_escaped(tile.question),
      tile.standing == "refused" ? "–" : sentence(tile.lead),
      sentence(tile.standing == "refused" ? tile.lead : tile.more));
}

std::string short_html(const PageCard& card, std::span<const Table> tables) {
  const bool is_said = card.standing != "refused" && card.standing != "sound";
  return fmt::format("<article>\n{}<h2>{}</h2>\n<p class=\"lead\">{}{}{} {}</p>\n{}</article>\n",
                     mark(card), xml_escaped(card.question), is_said ? sign_of(card) : "",
                     is_said ? " " : "", sentence(card.lead), sentence(card.more),
                     figures(card.charts, tables));
}

std::string head_html(const PageHead& head, std::span<const Table> tables) {
  std::string tiles, answers;
  for (const PageCard& tile : head.tiles) tiles += tile_html(tile);
  // Three columns: the last two share one.
  for (std::size_t i = 0; i < head.short_answers.size(); ++i) {
    const bool is_last = i + 1 == head.short_answers.size();
    answers += is_last ? "" : "<div>\n";
    answers += short_html(head.short_answers[i], tables);
    answers += i + 2 == head.short_answers.size() ? "" : "</div>\n";
  }
  const bool is_one = head.short_answers.size() == 1;
  std::string out = fmt::format("<header{}>\n<h1>{}</h1>\n<p class=\"facts\">{}</p>\n",
                                is_one ? " class=\"one\"" : "", xml_escaped(head.title),
                                with_whole_flags(fmt::format("{}", fmt::join(head.facts, " · "))));
  const std::string figures = fmt::format("<div class=\"tiles\">\n{}</div>\n", tiles);
  const std::string texts = fmt::format("<div class=\"four\">\n{}</div>\n", answers);
  out += is_one ? texts + figures : figures + texts;
  if (!head.command.empty()) out += command_html(head.command);
  if (!head.trust_question.empty()) {
    out += fmt::format("<section class=\"trust\"><h2>{}</h2>\n<p>{}</p>\n</section>\n",
                       xml_escaped(head.trust_question), sentence(head.trust));
  }
  return out + "</header>\n";
}

std::string contents(std::span<const PageTopic> topics) {
  std::string out = "<nav aria-label=\"Contents\">\n";
  for (const PageTopic& topic : topics) {
    out += fmt::format("<a href=\"#section-{}\">{}</a>\n", anchor(topic.title),
                       xml_escaped(topic.title));
  }
  return out +
         "<a href=\"#tables\">Tables</a>\n<button type=\"button\" id=\"json\">JSON</button>\n"
         "<button type=\"button\" id=\"theme\">light or dark</button>\n</nav>\n";
}

// --- tables -------------------------------------------------------------------------------------

// Writes a section with places for its tables, which the page's script fills.
std::string section_html(const PageSection& section, std::string_view title,
                         std::span<const Table> tables) {
  std::string out =
      fmt::format("<details class=\"section\" id=\"tables-{}\"><summary>{}</summary>\n",
                  anchor(section.id), xml_escaped(title)) +
      prose(section.reading);
  for (const std::string& name : section.tables) {
    const auto table = std::ranges::find(tables, name, &Table::name);
    if (table == tables.end()) continue;
    out += fmt::format(
        "<details class=\"data\"><summary>{} ({} row{})</summary>\n<div "
        "class=\"place\" data-table=\"{}\"></div>\n</details>\n",
        xml_escaped(table->title.empty() ? name : table->title), table->rows.size(),
        table->rows.size() == 1 ? "" : "s", xml_escaped(name));
  }
  return out + "</details>\n";
}

// Writes all sections; several titled "Kernels of one step: CELL" unfold from one line.
std::string sections_html(std::span<const PageSection> sections, std::span<const Table> tables) {
  std::string out;
  const auto subject = [](const PageSection& section) {
    return std::string_view(section.title).substr(0, section.title.find(": "));
  };
  for (auto first = sections.begin(); first != sections.end();) {
    const auto end = std::find_if(first, sections.end(), [&](const PageSection& section) {
      return subject(section) != subject(*first);
    });
    if (end - first == 1) {
      out += section_html(*first, first->title, tables);
    } else {
      out += fmt::format("<details class=\"section\"><summary>{} ({})</summary>\n",
                         xml_escaped(subject(*first)), end - first);
      for (auto one = first; one != end; ++one) {
        const auto behind = one->title.find_first_not_of(": ", subject(*one).size());
        out += section_html(
            *one, std::string_view(one->title).substr(behind == std::string::npos ? 0 : behind),
            tables);
      }
      out += "</details>\n";
    }
    first = end;
  }
  return out;
}

}  // namespace

Json result_of_page(std::string_view page, const std::string& name) {
  constexpr std::string_view kOpens = " id=\"report\">";
  const std::size_t begin = page.find(kOpens);
  if (begin == std::string_view::npos) return {};
  const std::string_view packed = page.substr(begin + kOpens.size());
  return by_row(Json::parse(gunzip(bytes_of_base64(packed.substr(0, packed.find('<')))), name));
}

std::string html_page(const PageHead& head, const Json& result, std::span<const Table> tables,
                      std::span<const PageTopic> topics, std::span<const PageSection> sections) {
  // A policy that forbids every request: what the page shows is what it carries.
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"generator\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
      "<title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n"
      "<body>\n",
      kGeneratorName, xml_escaped(head.title), web::kPageCss);
  out += head_html(head, tables) + "<main>\n" + contents(topics);
  for (const PageTopic& topic : topics) out += topic_html(topic, tables);
  const bool has_file = !head.numbers.empty();
  out += fmt::format(
      "<section id=\"tables\">\n<h2>Tables</h2>\n<noscript><p>Tables are laid out by a script in "
      "this file{}.</p></noscript>\n",
      has_file ? "; " + head.numbers + " beside it has the same numbers" : "");
  out += sections_html(sections, tables);
  out += fmt::format(
      "<details class=\"section\"><summary>Machine and build</summary>\n<div "
      "id=\"environment\"></div>\n</details>\n</section>\n<p class=\"paper soft\">The tables are "
      "on the screen{}.</p>\n</main>\n<div id=\"tip\" role=\"status\"></div>\n",
      has_file ? " and in " + head.numbers : "");
  // Scripts end before any text of the run: base64 leaves no "<" in it.
  out += fmt::format("<script type=\"text/plain\" id=\"report\">{}</script>\n<script>\n",
                     base64(gzip(by_column(result).dump())));
  out += std::string(web::kPageJs) + std::string(web::kChartsJs) + std::string(web::kWorkJs);
  return out + "const built = build();\n</script>\n</body>\n</html>\n";
}

}  // namespace tracestep
