#include "lab/study/answers.h"

#include <limits>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/utf8.h"

#include "embedded/question_pages.h"
#include "lab/measure/noise.h"
#include "lab/measure/validity.h"
#include "lab/report/columns.h"
#include "spec/fields.h"
#include "spec/run_flags.h"

namespace tracestep {
namespace {

// Names of flags that choose cells but are no fields of a run: those of attention and of starts.
constexpr std::string_view kMoreFlags[] = {"width", "attention_context", "mask", "saved",
                                           "warmup_study"};

// Returns the command without the flags of cells, which say what to measure, and their values.
std::string without_cells(std::string_view command) {
  std::string out;
  bool is_value = false;
  for (std::size_t start = 0; start < command.size();) {
    const std::size_t end = std::min(command.find(' ', start), command.size());
    const std::string_view word = command.substr(start, end - start);
    const bool says_cell =
        std::ranges::any_of(run_fields(), [&](const RunField& f) { return f.flag == word; }) ||
        std::ranges::any_of(kMoreFlags, [&](std::string_view name) {
          return word.starts_with("--") && word.substr(2) == with_dashes(name);
        });
    if (!is_value && !says_cell) out += fmt::format("{}{}", out.empty() ? "" : " ", word);
    is_value = says_cell;
    start = end + 1;
  }
  return out;
}

// Returns the command that measures these cells again: the question's command with the flags of the
// cells; several, joined by &&, where the cells are no grid.
std::string again(std::string_view command, std::span<const Json> cells) {
  const std::string start = without_cells(command);
  std::string out;
  for (const std::string& flags : flags_of(cells, kMoreFlags)) {
    out += fmt::format("{}{} {}", out.empty() ? "" : " && ", start, flags);
  }
  return out;
}

// The least relative noise at which a doubt about a time always counts, and a rounding error.
constexpr double kMostDifference = 0.1, kRounding = 1e-9;

// True if a row's verdict has doubts, and none but those that come from noise of times.
bool is_of_noise(const std::string& verdict) {
  static const std::set<std::string> kNoise = {"unsteady",         "drifting",  "others_running",
                                               "warmup_too_short", "throttled", "too_few_samples"};
  const Judgement judged = read_summary(verdict);
  return judged.worst == Severity::kDoubt &&
         std::ranges::all_of(judged.codes, [](auto& code) { return kNoise.contains(code); });
}

// Returns half the width of a median's 95 % interval over the median; infinite below six samples.
double noise_of(const Evidence::Row& row, std::string_view column) {
  constexpr std::size_t kFewest = 6;
  if (row.numbers(column).size() < kFewest) return std::numeric_limits<double>::infinity();
  const Quantity median = median_in(row, column);
  return (median.high - median.low) / 2 / median.value;
}

// Returns the rows of table "cells" with the steps that a row without samples is made from, found
// by its key, or by the label after the "@" in its table's name.
std::vector<Evidence::Row> cells_behind(const Evidence& evidence, const Evidence::Row& row) {
  const std::size_t at = row.table().find('@');
  const Json* cell = row.peek("cell");
  std::vector<Evidence::Row> out;
  for (const Evidence::Row& timed : evidence.rows("cells")) {
    const Json* key = timed.peek("cell");
    const bool is_one =
        cell != nullptr && key != nullptr &&
        (key_of_step(*cell) == *key ||
         (cell->is_array() && std::ranges::find(cell->items(), *key) != cell->items().end()));
    const bool is_labelled =
        at != std::string::npos && timed.text_or("label", "") == row.table().substr(at + 1);
    if (is_one || is_labelled) out.push_back(timed);
  }
  return out;
}

// Returns the largest noise of a row's medians: of the columns of samples that were read, else of
// all that it has, else of the steps that it is made from. Infinite: not known.
double noise_of(std::span<const Table> tables, const RowRef& ref) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  const Evidence evidence(tables);
  const Table& table = *std::ranges::find(tables, ref.table, &Table::name);
  std::vector<std::string> read, all;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::string& name = table.columns[i].name;
    if (!name.ends_with("samples_ms") || !table.rows[ref.row][i].is_array()) continue;
    all.push_back(name);
    if (std::ranges::find(ref.columns, name) != ref.columns.end()) read.push_back(name);
  }
  const Evidence::Row row = evidence.rows(ref.table)[ref.row];
  try {
    double out = 0;
    for (const std::string& name : read.empty() ? all : read) {
      out = std::max(out, noise_of(row, name));
    }
    if (!all.empty() || ref.table == "cells") return all.empty() ? kUnknown : out;
    const std::vector<Evidence::Row> timed = cells_behind(evidence, row);
    for (const Evidence::Row& step : timed) out = std::max(out, noise_of(step, "samples_ms"));
    return timed.empty() ? kUnknown : out;
  } catch (const Unsupported&) {  // a column of no times has no noise
    return kUnknown;
  }
}

// Returns the noise of shares of a step's time, if all times read from the row are shares of at
// least 60 %; nullopt otherwise. If noise moves a part and the rest of the step by a factor 1 ± n
// (n: `of_step`), a share s changes by up to 2·(1 - s)·n of itself. A kernel that was read by its
// name ("top_kernel") counts as its share ("top_percent").
std::optional<double> noise_of_shares(const Table& table, const RowRef& ref, double of_step) {
  static const std::set<std::string> kShares = {"share_percent", "top_percent", "products_percent"};
  constexpr double kLeastShare = 60;  // percent; smaller ones may not stay the largest
  std::optional<double> out;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    const bool was_read = std::ranges::find(ref.columns, column.name) != ref.columns.end();
    const bool is_there = !table.rows[ref.row][i].is_null();
    if (!was_read || !is_there || timing_of(column) == Timing::kNone) continue;
    const std::string name = column.name == "top_kernel" ? std::string("top_percent") : column.name;
    const std::optional<std::size_t> at = table.index_of(name);
    if (!at || !kShares.contains(name)) return std::nullopt;
    const Json& share = table.rows[ref.row][*at];
    if (!share.is_number() || share.as_double() < kLeastShare) return std::nullopt;
    out = std::max(out.value_or(0), 2 * (1 - share.as_double() / 100) * of_step);
  }
  return out;
}

Standing standing_of(std::string_view verdict) {
  const Severity worst = read_summary(verdict).worst.value_or(Severity::kNote);
  return worst == Severity::kInvalid ? Standing::kInvalid
         : worst == Severity::kDoubt ? Standing::kDoubtful
                                     : Standing::kSound;
}

// The facts on a row that decide the standing of an answer that reads it.
struct ReadRow {
  Timing timing = Timing::kNone;            // of what was read
  std::optional<std::string> verdict = {};  // the checker's; empty where it says nothing
  bool has_verdicts = false;                // the table
  bool read_verdict = false;
  Standing others = Standing::kSound;  // from status and samples
};

ReadRow read_row(const Table& table, const RowRef& ref) {
  ReadRow out;
  const std::vector<Json>& cells = table.rows[ref.row];
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    const Json& cell = cells[i];
    const bool was_read = std::ranges::find(ref.columns, column.name) != ref.columns.end();
    if (was_read && !cell.is_null()) out.timing = std::max(out.timing, timing_of(column));
    if (is_verdict_column(column)) {
      out.has_verdicts = true;
      out.read_verdict = was_read;
      if (cell.is_string()) out.verdict = cell.as_string();
    }
    const bool is_interrupted =
        column.name == "status" && cell.is_string() && cell.as_string() == "interrupted";
    if (is_interrupted) out.others = std::max(out.others, Standing::kInterrupted);
    const bool is_list = was_read && cell.is_array() && timing_of(column) != Timing::kNone;
    if (is_list && cell.items().size() == 1) out.timing = Timing::kSingle;
  }
  return out;
}

// Returns the worst standing of the step whose label is after the "@" in a table's name, over all
// tables that judge it: figures of its parts are no more certain. nullopt: no table judges it.
std::optional<Standing> standing_of_step(std::span<const Table> tables, std::string_view table) {
  const std::size_t at = table.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view step = table.substr(at + 1);
  std::optional<Standing> out;
  for (const Table& judged : tables) {
    const auto label = judged.index_of("label");
    const auto verdict = std::ranges::find_if(judged.columns, is_verdict_column);
    if (!label || verdict == judged.columns.end()) continue;
    for (const std::vector<Json>& row : judged.rows) {
      const Json& words = row[static_cast<std::size_t>(verdict - judged.columns.begin())];
      const bool is_it = row[*label].is_string() && row[*label].as_string() == step;
      if (!is_it || !words.is_string()) continue;
      out = std::max(out.value_or(Standing::kSound), standing_of(words.as_string()));
    }
  }
  return out;
}

// Lists rows by table: "clocks row 2; passes rows 1, 4".
std::string words_of(const std::vector<RowRef>& refs) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> by_table;
  for (const RowRef& ref : refs) {
    if (by_table.empty() || by_table.back().first != ref.table) by_table.push_back({ref.table, {}});
    by_table.back().second.push_back(ref.row + 1);
  }
  std::vector<std::string> words;
  words.reserve(by_table.size());
  for (const auto& [table, rows] : by_table) {
    words.push_back(fmt::format("{} {} {}", table, rows.size() == 1 ? "row" : "rows",
                                list_of_rows(rows, ", ", " to ")));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

// Says what the checker has against the worst rows of the answer: "Noisy: other programs kept cores
// busy."; without reasons, just how those rows stand.
Text doubt_of(const Answer& answer, std::span<const Table> tables) {
  std::set<std::string> reasons;
  for (const RowRef& ref : answer.worst) {
    const Table& table = *std::ranges::find(tables, ref.table, &Table::name);
    const std::string verdict = read_row(table, ref).verdict.value_or("ok");
    if (standing_of(verdict) != answer.standing) continue;
    const std::vector<std::string> of_row = words_of_codes(read_summary(verdict).codes);
    reasons.insert(of_row.begin(), of_row.end());  // rows share some
  }
  std::string name(name_of(answer.standing));
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return Text(
      Piece{fmt::format("{}{}{}.", name, reasons.empty() ? "" : ": ", fmt::join(reasons, "; "))});
}

// True if the answer lacks rows; false if the question's page itself says why there is no answer.
bool is_missing(const Text& why) {
  return std::ranges::any_of(why.pieces(), [](const Piece& piece) {
    return piece.basis == Basis::kQuote && piece.formula.empty();
  });
}

// True if an experiment that fills tables of the question's page left cells out.
bool had_no_time(const Question& question, std::span<const Table> tables) {
  const auto parts = std::ranges::find(tables, "parts", &Table::name);
  if (parts == tables.end()) return false;
  const auto named = parts->index_of("tables"), status = parts->index_of("status");
  if (!named || !status) return false;
  std::set<std::string> wanted;
  for (const auto& [table, column] : pages::names_in(*question.page)) wanted.insert(table);
  return std::ranges::any_of(parts->rows, [&](const std::vector<Json>& row) {
    const Json &all = row[*named], &how = row[*status];
    const bool is_short = how == Json("in part") || how == Json("left out");
    if (!is_short || !all.is_string()) return false;
    return std::ranges::any_of(pages::split(all.as_string(), ","),
                               [&](const std::string& name) { return wanted.contains(name); });
  });
}

// Adds the device of the study to the command, where it is not the usual one.
std::string on_device(std::string_view command, std::span<const Table> tables) {
  const std::string usual = RunSpec().place.device;
  const auto cells = std::ranges::find(tables, "cells", &Table::name);
  if (cells == tables.end() || cells->rows.empty()) return std::string(command);
  const std::optional<std::size_t> device = cells->index_of("device");
  if (!device) return std::string(command);
  const Json& name = cells->rows.front()[*device];
  if (!name.is_string() || name.as_string() == usual) return std::string(command);
  return fmt::format("{} {} {}", command, field_named("device").flag, name.as_string());
}

}  // namespace

std::vector<Question> questions_in(std::string_view markdown) {
  std::vector<Question> out;
  for (pages::Page& page : pages::parse(markdown)) {
    TRACESTEP_CHECK(page.head.size() == 3, "a question's head has three parts");
    Question q{.id = page.head[0],
               .number = page.head[1],
               .topic = page.head[2],
               .question = page.text("Question"),
               .command = "tracestep " + page.command,
               .page = {}};
    q.page = std::make_shared<const pages::Page>(std::move(page));
    out.push_back(std::move(q));
  }
  return out;
}

std::span<const Question> questions() {
  static const std::vector<Question> all = [] {
    std::vector<Question> out;
    for (const question_pages::File& file : question_pages::files()) {
      std::ranges::move(questions_in(file.text), std::back_inserter(out));
    }
    return out;
  }();
  return all;
}

Answer answer(const Question& question, std::span<const Table> tables) {
  Answer out{.id = question.id,
             .number = question.number,
             .topic = question.topic,
             .question = question.question,
             .text = {},
             .rows = {},
             .command = question.command};
  const Evidence evidence(tables);
  double least_difference = kMostDifference;
  try {
    pages::Composed composed = pages::compose(*question.page, evidence);
    least_difference = std::min(least_difference, composed.least_difference);
    out.lead = std::move(composed.lead);
    out.more = std::move(composed.more);
    out.text = out.more.empty() ? out.lead : out.lead + Text(" ") + out.more;
    out.charts = std::move(composed.charts);
    for (std::size_t i = 0; i < out.charts.size(); ++i) {
      // The first chart shows what the sentence says, and others what their captions say.
      const std::string caption = i == 0 ? std::string() : caption_of(out.charts[i], tables);
      out.charts[i].title = caption.empty() ? out.lead.words() : caption;
      out.charts[i].name =
          fmt::format("{}{}", question.id, i == 0 ? "" : fmt::format("-{}", i + 1));
    }
    out.rows = std::move(composed.rows);
    out.lines = std::move(composed.lines);
  } catch (const Unsupported& missing) {
    out.refused = true;
    if (is_missing(missing.why())) {
      out.lead = Text(had_no_time(question, tables)
                          ? "No answer: no time was left for it; the command below measures it."
                          : "No answer: this run did not measure it; the command below does.");
      out.more = say("Missing: {}.", {missing.why()});
      out.text = out.lead + Text(" ") + out.more;
    } else {
      out.text = out.lead = say("No answer: {}.", {missing.why()});
    }
    out.rows = evidence.used();
  }
  out.standing = standing_of(tables, out.rows, least_difference);
  if (out.standing != Standing::kSound) {
    std::ranges::copy_if(out.rows, std::back_inserter(out.worst), [&](const RowRef& ref) {
      return standing_of(tables, {&ref, 1}, least_difference) == out.standing;
    });
    if (!out.refused) {
      const Text others = std::exchange(out.doubt, doubt_of(out, tables));
      if (!others.empty()) out.doubt += Text(" ") + others;
    }
  }
  // Rows that were not measured may be lacking. Rows of many experiments have one command, which
  // takes no cells.
  const bool is_of_cells = !out.refused && question.command != "tracestep study";
  const std::vector<Json> cells = evidence.cells_of(out.rows);
  out.command = is_of_cells && !cells.empty() ? again(question.command, cells)
                                              : on_device(question.command, tables);
  return out;
}

std::vector<Answer> answer_all(std::span<const Question> questions, std::span<const Table> tables) {
  std::vector<Answer> out;
  for (const Question& question : questions) out.push_back(answer(question, tables));
  return out;
}

Json key_of_step(const Json& cell) {
  if (!cell.is_object() || cell.find("warmup_study") == nullptr) return cell;
  Json out = Json::object();
  for (const auto& [name, value] : cell.members()) {
    if (name != "warmup_study") out[name] = value;
  }
  return out;
}

Standing standing_of(std::span<const Table> tables, std::span<const RowRef> rows,
                     double least_difference) {
  Standing out = Standing::kSound, beside = Standing::kSound;
  bool has_beside = false, needs_beside = false;
  for (const RowRef& ref : rows) {
    const ReadRow row = read_row(*std::ranges::find(tables, ref.table, &Table::name), ref);
    const std::string verdict = row.verdict.value_or("ok");
    const auto noise = [&] {
      const Table& table = *std::ranges::find(tables, ref.table, &Table::name);
      const double of_step = noise_of(tables, ref);
      return noise_of_shares(table, ref, of_step).value_or(of_step);
    };
    const bool is_small = is_of_noise(verdict) && noise() + kRounding < least_difference;
    const Standing judged = is_small ? Standing::kSound : standing_of(verdict);
    out = std::max(out, row.others);
    if (row.timing == Timing::kSingle) out = std::max(out, Standing::kSingle);
    const bool is_timed = row.timing != Timing::kNone;
    if (is_timed || std::ranges::any_of(read_summary(verdict).codes, is_of_label))
      out = std::max(out, judged);
    if (is_timed && !row.has_verdicts) {
      needs_beside = true;
      const std::optional<Standing> of_step = standing_of_step(tables, ref.table);
      has_beside = has_beside || of_step;
      beside = std::max(beside, of_step.value_or(Standing::kSound));
    }
    if (row.read_verdict) {
      has_beside = true;
      beside = std::max(beside, judged);
    }
  }
  if (!needs_beside) return out;
  return std::max(out, has_beside ? beside : Standing::kNotJudged);
}

std::string warning_of(const Answer& answer) {
  if (answer.refused || answer.standing == Standing::kSound) return {};
  return fmt::format(" ({})", name_of(answer.standing));
}

std::vector<RowRef> rows_in_text(const Answer& answer) {
  std::vector<RowRef> out;
  std::ranges::copy_if(answer.rows, std::back_inserter(out), [&](const RowRef& ref) {
    return std::ranges::any_of(answer.text.pieces(), [&](const Piece& piece) {
      return formula_has_row(piece.formula, ref.table, ref.row);
    });
  });
  return out.empty() ? answer.rows : out;
}

std::string rests_on(const Answer& answer) {
  const std::string rows = words_of(rows_in_text(answer));
  if (answer.refused || answer.standing == Standing::kSound) return rows;
  const std::string worst = words_of(answer.worst);
  return fmt::format("{} ({}{}{})", rows, name_of(answer.standing), worst.empty() ? "" : ": ",
                     worst);
}

namespace {

Json pieces_of(const Text& text) {
  Json out = Json::array();
  for (const Piece& piece : text.pieces()) {
    Json json = Json::Object{{"text", piece.words}};
    const char* const names[] = {"", "figure", "relation", "quote"};
    if (!piece.formula.empty()) json[names[static_cast<std::size_t>(piece.basis)]] = piece.formula;
    out.push_back(std::move(json));
  }
  return out;
}

// The answer's small table as JSON: rows of cells, the head first, each cell in pieces.
Json lines_in_pieces(const Answer& answer) {
  Json out = Json::array();
  for (const std::vector<Text>& line : answer.lines) {
    Json cells = Json::array();
    for (const Text& cell : line) cells.push_back(pieces_of(cell));
    out.push_back(std::move(cells));
  }
  return out;
}

}  // namespace

Table lines_of(const Answer& answer) {
  constexpr std::size_t kLongest = 60;  // bytes of a cell: kernels of templates have hundreds
  Table out{.name = answer.id};
  if (answer.lines.empty()) return out;
  for (const Text& title : answer.lines.front()) {
    out.columns.push_back(text_column("c" + std::to_string(out.columns.size()), title.words()));
  }
  for (std::size_t i = 1; i < answer.lines.size(); ++i) {
    std::vector<Json> cells;
    for (const Text& cell : answer.lines[i]) cells.push_back(message_line(cell.words(), kLongest));
    out.add_row(std::move(cells));
  }
  return out;
}

Table answers_table(std::string name, std::string title, std::span<const Answer> answers) {
  Table table{.name = std::move(name), .title = std::move(title)};
  table.columns = {
      text_column("id"),
      text_column("number", {}, "of the question in the handout; empty: it does not ask it"),
      text_column("topic"),
      text_column("question"),
      {.name = "refused", .kind = ColumnKind::kBool},
      text_column("answer", {}, "or why there is none"),
      text_column("rests_on", "rests on", "tables and rows, counted from 1"),
      {.name = "rows",
       .kind = ColumnKind::kStructured,
       .description = "the same for programs, counted from 0, with the columns read"},
      text_column("standing", {}, "of the worst of these rows"),
      text_column("worst", {}, "those rows, where it is not sound"),
      {.name = "pieces",
       .kind = ColumnKind::kStructured,
       .description = "the answer, piece by piece; figures, comparisons and quotations "
                      "with the formula that gives them"},
      {.name = "lines",
       .kind = ColumnKind::kStructured,
       .description = "its own table, the head first; each cell in such pieces"},
      text_column("doubts", {}, "what speaks against its rows"),
      text_column("command", {}, "measures the rows again, made from their cells")};
  for (const Answer& a : answers) {
    Json rows = Json::array();
    for (const RowRef& ref : a.rows) {
      Json columns = Json::array();
      for (const std::string& column : ref.columns) columns.push_back(column);
      rows.push_back(Json::Object{{"table", ref.table},
                                  {"row", static_cast<std::int64_t>(ref.row)},
                                  {"columns", std::move(columns)}});
    }
    table.add_row({a.id, a.number, a.topic, a.question, a.refused, a.text.words(), rests_on(a),
                   std::move(rows), name_of(a.standing), words_of(a.worst), pieces_of(a.text),
                   lines_in_pieces(a), or_null(a.doubt.words()), a.command});
  }
  return table;
}

}  // namespace tracestep
