#include "lab/explain/claims.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "embedded/claim_pages.h"
#include "lab/explain/claim_figures.h"
#include "lab/explain/page.h"
#include "lab/report/columns.h"
#include "lab/report/writers.h"
#include "nn/config.h"

namespace tracestep {
namespace {

constexpr double kBatch = 4;  // of every published model

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  while (true) {
    const std::size_t end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + separator.size());
  }
}

// "# X12 | C, B, E | launch-bound | small 128"; the cell may be missing.
Claim headed(std::string_view line) {
  const std::vector<std::string> parts = split(line.substr(2), " | ");
  TRACESTEP_CHECK(parts.size() == 3 || parts.size() == 4, "a claim begins with \"{}\"", line);
  Claim out{.row = parts[0], .studies = parts[1], .topic = parts[2]};
  if (parts.size() == 4) {
    const std::vector<std::string> cell = split(parts[3], " ");
    out.size = cell[0];
    out.context = std::stoll(cell.back());
  }
  return out;
}

// "- time per layer (ms): name = formula"
ClaimLine derived(std::string_view line) {
  const std::size_t equals = line.find(" = "), colon = line.rfind(": ", equals);
  TRACESTEP_CHECK(colon != std::string_view::npos && equals != std::string_view::npos,
                  "\"{}\" is no line of a derivation", line);
  ClaimLine out{.what = std::string(line.substr(2, colon - 2)),
                .name = std::string(line.substr(colon + 2, equals - colon - 2)),
                .formula = std::string(line.substr(equals + 3)),
                .unit = "count"};
  const std::size_t open = out.what.rfind(" (");
  if (out.what.ends_with(')') && open != std::string::npos) {
    out.unit = out.what.substr(open + 2, out.what.size() - open - 3);
    out.what.resize(open);
  }
  return out;
}

// Lines of a file; one that begins with a space continues the one before it.
std::vector<std::string> logical_lines(std::string_view markdown) {
  std::vector<std::string> out;
  std::istringstream in{std::string(markdown)};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(' ') && !out.empty()) {
      out.back() += line.substr(line.find_first_not_of(' ') - 1);
    } else {
      out.push_back(std::move(line));
    }
  }
  return out;
}

// Adds the claims of a file.
void read(std::string_view markdown, std::vector<Claim>& out) {
  constexpr std::string_view kClaim = "Claimed: ", kIsRight = "Right: ";
  for (const std::string& line : logical_lines(markdown)) {
    if (line.starts_with("# ")) {
      out.push_back(headed(line));
    } else if (line.starts_with(kClaim)) {
      out.back().claimed = line.substr(kClaim.size());
    } else if (line.starts_with(kIsRight)) {
      out.back().right = line.substr(kIsRight.size());
    } else if (line.starts_with("- ")) {
      out.back().lines.push_back(derived(line));
    } else if (line.starts_with("$ ")) {
      out.back().command = line.substr(2);
    } else {
      TRACESTEP_CHECK(line.empty(), "\"{}\" is no part of a claim", line);
    }
  }
}

using Names = std::map<std::string, double, std::less<>>;

// B, T, C and so on of the claim's cell.
Names letters_of(const Claim& claim) {
  if (claim.size.empty()) return {};
  const ModelConfig m = preset(claim.size);
  const auto of = [](std::int64_t value) { return static_cast<double>(value); };
  return {{"B", kBatch},       {"T", of(claim.context)}, {"C", of(m.d_model)},
          {"F", of(m.d_ff)},   {"H", of(m.heads)},       {"D", of(m.head_width())},
          {"L", of(m.layers)}, {"V", of(m.vocab)},       {"P", of(parameter_formula(m))}};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// What words are looked for in.
std::string text_of(const Claim& claim) {
  std::string out = fmt::format("{} {} {} {} {} {}", claim.row, claim.studies, claim.topic,
                                claim.claimed, claim.right, claim.command);
  for (const ClaimLine& line : claim.lines) out += " " + line.what;
  return lower(out);
}

// A line of text of at most 100 columns; continued lines begin the same way.
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

// The notes of a derivation, in order.
enum Note : std::size_t { kClaimed, kRight };

Table filled(const Claim& claim) {
  Names names = letters_of(claim);
  Page page;
  Values values;
  for (const auto& [name, value] : names) values.set(name, value);
  for (const ClaimLine& line : claim.lines) {
    const Evaluated found = evaluate(line.formula, names, claim_figure);
    names[line.name] = found.value;
    values.set(line.name, found.value);
    page.lines.push_back(
        {line.what, line.formula, found.numbers, fmt::format("{{{}:{}}}", line.name, line.unit)});
  }
  page.notes = {claim.claimed, claim.right};
  return fill(page, values);
}

}  // namespace

const std::vector<Claim>& claims() {
  static const std::vector<Claim> all = [] {
    std::vector<Claim> out;
    for (const claim_pages::File& page : claim_pages::files()) read(page.text, out);
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
              .columns = {text_column("row", "", "of the study"), text_column("studies"),
                          text_column("topic"), text_column("claimed"), text_column("right"),
                          text_column("command")}};
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
