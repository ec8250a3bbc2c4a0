#include "course/claims.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "course/claim_figures.h"
#include "course/tables.h"
#include "embedded/claim_pages.h"
#include "lab/pages/figures.h"
#include "lab/report/known_columns.h"
#include "lab/report/writers.h"
#include "nn/config.h"

namespace tracestep {
namespace {

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  while (true) {
    const std::size_t end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + separator.size());
  }
}

// The claim of a page, whose head is "X12 | C, B, E | launch-bound | small 128" or lacks the cell.
Claim claim_of(pages::Page page) {
  const std::vector<std::string>& head = page.head;
  TRACESTEP_CHECK(head.size() == 3 || head.size() == 4, "a claim begins with \"{}\"", head[0]);
  Claim out{.row = head[0], .studies = head[1], .topic = head[2]};
  if (head.size() == 4) {
    const std::vector<std::string> cell = split(head[3], " ");
    out.size = cell[0];
    out.context = std::stoll(cell.back());
  }
  out.claimed = page.text("Claimed");
  out.right = page.text("Right");
  out.command = std::move(page.command);
  out.lines = std::move(page.figures);
  return out;
}

using Names = std::map<std::string, Quantity, std::less<>>;

// The values of B, T, C and so on in the claim's cell; none if it has no cell.
Names letters_of(const Claim& claim) {
  if (claim.size.empty()) return {};
  const ModelConfig m = preset(claim.size);
  const auto of = [](auto value) { return Quantity::constant(static_cast<double>(value)); };
  return {{"B", of(kPublishedBatch)}, {"T", of(claim.context)}, {"C", of(m.d_model)},
          {"F", of(m.d_ff)},          {"H", of(m.heads)},       {"D", of(m.head_width())},
          {"L", of(m.layers)},        {"V", of(m.vocab)},       {"P", of(parameter_formula(m))}};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The text of a claim in which find_claims() searches, in lower case.
std::string text_of(const Claim& claim) {
  std::string out = fmt::format("{} {} {} {} {} {}", claim.row, claim.studies, claim.topic,
                                claim.claimed, claim.right, claim.command);
  for (const pages::Figure& line : claim.lines) out += " " + line.what;
  return lower(out);
}

// Returns the text as one paragraph, wrapped at 100 columns.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kWidth = 100;
  std::string out;
  std::size_t column = 0;
  for (const std::string& word : split(text, " ")) {
    if (column > 0 && column + 1 + display_width(word) > kWidth) {
      out += '\n';
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += display_width(word);
  }
  return out + "\n";
}

// Indices into the notes of a filled claim: the wrong sentence, then the right one.
enum Note : std::size_t { kClaimed, kRight };

Table filled(const Claim& claim) {
  Names names = letters_of(claim);
  const Scope known{.figure = [&](std::string_view name) -> std::optional<Quantity> {
                      const auto found = names.find(name);
                      if (found == names.end()) return std::nullopt;
                      return found->second;
                    },
                    .look_up = claim_figure};
  Table table = pages::figure_table("explain");
  for (const pages::Figure& line : claim.lines) {
    names[line.name] = pages::add_figure(table, line, known);
  }
  table.notes = {pages::filled(claim.claimed, known), pages::filled(claim.right, known)};
  return table;
}

}  // namespace

const std::vector<Claim>& claims() {
  static const std::vector<Claim> all = [] {
    std::vector<Claim> out;
    for (const claim_pages::File& file : claim_pages::files()) {
      for (pages::Page& page : pages::parse(file.text)) out.push_back(claim_of(std::move(page)));
    }
    std::ranges::sort(out, {}, &Claim::row);
    return out;
  }();
  return all;
}

std::vector<const Claim*> find_claims(std::string_view words) {
  const std::string asked = lower(words);
  std::vector<const Claim*> exact, with_words;
  for (const Claim& claim : claims()) {
    if (lower(claim.row) == asked || claim.topic == asked) exact.push_back(&claim);
    const std::string text = text_of(claim);
    const bool has_all = std::ranges::all_of(split(asked, " "), [&](const std::string& word) {
      return text.find(word) != std::string::npos;
    });
    if (has_all) with_words.push_back(&claim);
  }
  return exact.empty() ? with_words : exact;
}

std::string claims_note(std::string_view topic) {
  std::vector<std::string> rows;
  for (const Claim& claim : claims()) {
    if (claim.topic == topic) rows.push_back(claim.row);
  }
  if (rows.empty()) return {};
  const std::string command = fmt::format("tracestep explain --claims {}", topic);
  return fmt::format("published claims that do not hold: {} ({})", fmt::join(rows, ", "), command);
}

Table derivation(const Claim& claim) {
  Table table = filled(claim);
  table.title = fmt::format("{}: what is wrong in {}", claim.row, claim.studies);
  table.notes = {"claimed: " + table.notes[kClaimed], "right: " + table.notes[kRight],
                 fmt::format("topic: tracestep explain {}", claim.topic),
                 "shown by: tracestep " + claim.command};
  return table;
}

Table claim_table(const std::vector<const Claim*>& found) {
  Table table{.name = "claims",
              .title = "Published sentences that do not hold",
              .columns = {col::row("of the study"), text_column("studies"), col::topic,
                          text_column("claimed"), text_column("right"), col::command}};
  for (const Claim* claim : found) {
    const Table numbers = filled(*claim);
    table.add_row({claim->row, claim->studies, claim->topic, numbers.notes[kClaimed],
                   numbers.notes[kRight], "tracestep " + claim->command});
  }
  return table;
}

std::string claims_page() {
  constexpr const char* kWrite = "tracestep show --docs claims";
  constexpr const char* kFind = "tracestep explain --claims WORDS";
  std::string out = "# Published sentences that do not hold\n\n" +
                    wrapped(fmt::format(
                        "Written by `{}`. Figures of the five write-ups "
                        "([published.md](published.md)) are looked up in their tables, all others "
                        "computed; `{}` finds a claim by its row, its topic or its words. Letters "
                        "are those of the [glossary](glossary.md).",
                        kWrite, kFind));
  for (const Claim& claim : claims()) {
    Table table = filled(claim);
    out += fmt::format("\n## {}\n\n{}\n{}", claim.row,
                       wrapped(fmt::format("In {} (`explain {}`). **Claimed:** {}", claim.studies,
                                           claim.topic, table.notes[kClaimed])),
                       wrapped("**Right:** " + table.notes[kRight]));
    if (!table.rows.empty()) {
      table.notes.clear();
      Document lines;
      lines.tables.push_back(std::move(table));
      std::ostringstream derivation;
      write_markdown(lines, derivation);
      out += "\n" + derivation.str();
    }
    out += fmt::format("\n`tracestep {}`\n", claim.command);
  }
  return out;
}

}  // namespace tracestep
