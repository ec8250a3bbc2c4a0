#include "lab/study/claims_context.h"

#include <algorithm>
#include <optional>

namespace tracestep::testing {
namespace {

// Nouns right behind a figure, and what its formula must name then.
struct Noun {
  const char* words;
  std::vector<const char*> columns;
};
const Noun kNouns[] = {
    {" launches", {"launches"}},
    {" samples", {"samples"}},
    {" tokens", {"context", "tokens"}},
    {" parameters", {"parameters"}},
    {" layers", {"layers"}},
    {" contexts", {"context"}},
    {" steps", {"step", "warmup", "samples"}},
    {" times the FLOPs", {"flops"}},
    {" times the bytes", {"bytes"}},
    {" times the time", {"ms", "ratio"}},
};
constexpr const char* kUnits[] = {
    " ms",     " µs",           " ns",      " s",       " %",    "%",
    " B",      " KiB",          " MiB",     " GiB",     " TiB",  " seconds",
    " second", " milliseconds", " minutes", " percent", " bytes"};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (static_cast<unsigned char>(c) & 0x80);
}

bool starts_with_word(const std::string& text, std::string_view word) {
  return text.starts_with(word) && (text.size() == word.size() || !is_letter(text[word.size()]));
}

const Json* cell_of(const NamedRow& row, std::string_view column) {
  const auto found = std::ranges::find(row.table->columns, column, &Column::name);
  if (found == row.table->columns.end()) return nullptr;
  return &row.table->rows[row.row][static_cast<std::size_t>(found - row.table->columns.begin())];
}

bool has_row(const std::vector<NamedRow>& rows, const NamedRow& row) {
  return std::ranges::any_of(
      rows, [&](const NamedRow& r) { return r.table == row.table && r.row == row.row; });
}
bool has_table(const std::vector<NamedRow>& rows, const NamedRow& row) {
  return std::ranges::any_of(rows, [&](const NamedRow& r) { return r.table == row.table; });
}

// Whether `rows` are of the quoted one, as far as they are of its table.
bool are_of(const std::vector<NamedRow>& rows, const NamedRow& quoted) {
  return !has_table(rows, quoted) || has_row(rows, quoted);
}

// Where the sentence ends that begins at a piece: behind the last piece of it.
std::size_t end_of_sentence(const std::vector<Piece>& pieces, std::size_t begin) {
  std::size_t end = begin;
  while (end < pieces.size() && pieces[end].words.find(". ") == std::string::npos) ++end;
  return std::min(end + 1, pieces.size());
}

}  // namespace

// A label is a quotation of a size or of a label that a colon follows in its sentence; it stands
// over everything up to the next such quotation.
Context::Context(const std::vector<Piece>& pieces, std::span<const Table> tables)
    : pieces_(pieces), tables_(tables) {
  std::optional<std::string> size;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string& formula = pieces[i].formula;
    if (is_quote(i) && (formula.ends_with("].size") || formula.ends_with("].label"))) {
      size.reset();
      const std::vector<NamedRow> rows = rows_named(formula, tables);
      const Json* cell = rows.empty() ? nullptr : cell_of(rows[0], "size");
      for (std::size_t j = i + 1; j < pieces.size(); ++j) {
        const std::size_t colon = words(j).find(": "), stop = words(j).find_first_of(".;");
        if (colon < stop && cell != nullptr && cell->is_string()) size = cell->as_string();
        if (std::min(colon, stop) != std::string::npos && pieces[j].basis == Basis::kNone) break;
      }
    }
    if (size) size_of_[i] = *size;
  }
}

const std::string& Context::words(std::size_t piece) const {
  static const std::string none;
  return piece < pieces_.size() ? pieces_[piece].words : none;
}

bool Context::is_quote(std::size_t piece) const {
  return piece < pieces_.size() && pieces_[piece].basis == Basis::kQuote &&
         !pieces_[piece].formula.empty();
}

std::string Context::wrong_at(std::size_t piece) const {
  std::string out = wrong_unit_or_noun(piece);
  if (out.empty()) out = wrong_label(piece);
  if (out.empty()) out = wrong_direction(piece);
  return out;
}

std::string Context::wrong_unit_or_noun(std::size_t piece) const {
  if (pieces_[piece].basis != Basis::kFigure) return {};
  const bool is_quoted = is_quote(piece + 1);
  const std::string& after = words(piece + 1);
  if (is_quoted) return {};
  for (const char* unit : kUnits) {
    const bool is_count_of_bytes = std::string_view(unit) == " bytes" &&
                                   pieces_[piece].formula.find("bytes") != std::string::npos;
    if (starts_with_word(after, unit) && !is_count_of_bytes)
      return std::string("a unit of its own:") + unit;
  }
  const std::string& formula = pieces_[piece].formula;
  for (const Noun& noun : kNouns) {
    if (!starts_with_word(after, noun.words)) continue;
    const bool is_named = std::ranges::any_of(noun.columns, [&](const char* column) {
      return formula.find(column) != std::string::npos;
    });
    if (!is_named) return std::string("its formula is not of") + noun.words;
  }
  return {};
}

std::string Context::wrong_label(std::size_t piece) const {
  const auto label = size_of_.find(piece);
  const Basis basis = pieces_[piece].basis;
  if (label == size_of_.end() || (basis != Basis::kFigure && basis != Basis::kRelation)) return {};
  for (const NamedRow& row : rows_named(pieces_[piece].formula, tables_)) {
    const Json* size = cell_of(row, "size");
    if (size == nullptr || !size->is_string() || size->as_string() == label->second) continue;
    return "of " + size->as_string() + ", under the label of " + label->second;
  }
  return {};
}

// "{a} takes {b / c} times as long as {d}", "{a} takes longer than {b}", "From {a} to {b} … {c}
// times".
std::string Context::wrong_direction(std::size_t piece) const {
  const Piece& p = pieces_[piece];
  const auto quoted = [&](std::size_t i) { return rows_named(pieces_[i].formula, tables_).at(0); };
  if (p.basis == Basis::kRelation && p.words.ends_with("than ") && is_quote(piece + 1)) {
    for (const EvaluatedRelation& r : evaluate_relation(p.formula, tables_)) {
      if (r.right.find('[') == std::string::npos) continue;
      if (!are_of(rows_named(r.right, tables_), quoted(piece + 1)))
        return "compared with another row";
    }
  }
  const std::string& after = words(piece + 1);
  if (p.basis == Basis::kFigure && is_quote(piece + 2)) {
    const bool is_long = after == " times as long as " || after == " times as much as ",
               is_fast = after == " times as fast as ";
    const auto ratio = is_long || is_fast ? ratio_rows(p.formula, tables_) : std::nullopt;
    const NamedRow other = ratio ? quoted(piece + 2) : NamedRow{nullptr, 0};
    if (ratio && !are_of(is_long ? ratio->below : ratio->above, other))
      return "a ratio upside down";
  }
  const bool is_span = (p.words.ends_with("From ") || p.words.ends_with("from ")) &&
                       is_quote(piece + 1) && words(piece + 2).starts_with(" to ") &&
                       is_quote(piece + 3);
  if (!is_span) return {};
  for (std::size_t i = piece + 4; i < end_of_sentence(pieces_, piece + 4); ++i) {
    const bool is_speed = words(i - 1).ends_with("by ");  // "faster, by 2.00 times"
    if (pieces_[i].basis != Basis::kFigure || is_speed) continue;
    if (!words(i + 1).starts_with(" times")) continue;
    const auto ratio = ratio_rows(pieces_[i].formula, tables_);
    if (!ratio) continue;
    const NamedRow from = quoted(piece + 1), to = quoted(piece + 3);
    if (!are_of(ratio->above, to) || !are_of(ratio->below, from)) return "a ratio upside down";
  }
  return {};
}

}  // namespace tracestep::testing
