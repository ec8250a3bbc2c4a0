// The validity checker: finds rows whose numbers are not what their labels say. Every check is a
// pure function of rows as in the table of `bench` or a JSON result, so that old files can be
// checked too, and tests can construct each fault. Other experiments give it what they measured
// under the names of bench's columns.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// A row as cells by column name, with the environment of its run. A check that needs a column which
// is missing or empty is skipped.
class ResultRow {
 public:
  // Makes a row by itself. `cells`: an object, as in "rows" of a JSON result.
  explicit ResultRow(Json cells, Json environment = Json::object());
  // Makes a row of a result, whose rows share one environment.
  ResultRow(Json cells, std::shared_ptr<const Json> environment);
  static ResultRow of(const std::vector<Column>& columns, const std::vector<Json>& cells,
                      const Json& environment);

  // Returns the cell, or nullptr when it is missing or empty.
  const Json* find(std::string_view column) const;
  std::optional<double> number(std::string_view column) const;
  std::optional<bool> truth(std::string_view column) const;
  std::string text(std::string_view column) const;  // The text of a cell; empty if there is none.
  // Returns the numbers in a list; empty if there are none.
  std::vector<double> numbers(std::string_view column) const;
  std::optional<double> environment_number(std::string_view item) const;
  // Returns the structured parameters of the row ("cell"), or nullptr.
  const Json* parameters() const;
  // Returns a field of the run: its column, else the member of parameters(), else nullptr.
  const Json* parameter(std::string_view field) const;

  // Short ways to read columns that many checks need; a missing text is empty and a missing number
  // is nullopt.
  std::string size() const { return text("size"); }
  std::string status() const { return text("status"); }
  std::string mode() const { return text("mode"); }
  std::string precision() const { return text("precision"); }
  std::string ops() const { return text("ops"); }
  std::string attention() const { return text("attention"); }
  std::string table() const { return text("table"); }
  std::optional<double> context() const { return number("context"); }
  std::optional<double> batch() const { return number("batch"); }
  std::optional<double> wall_ms() const { return number("wall_ms"); }
  std::optional<double> device_busy_ms() const { return number("device_busy_ms"); }
  std::optional<double> tflops() const { return number("tflops"); }
  std::optional<double> peak_bytes() const { return number("peak_bytes"); }
  std::optional<double> instrumented_wall_ms() const { return number("instrumented_wall_ms"); }
  std::optional<double> median_ms() const { return number("median_ms"); }
  std::optional<double> others_cores() const { return number("others_cores"); }
  std::optional<double> flops() const { return number("flops"); }
  std::optional<double> vocab() const { return number("vocab"); }
  std::optional<double> launches() const { return number("launches"); }
  std::optional<double> interrupted_ms() const { return number("interrupted_ms"); }
  std::optional<double> width() const { return number("width"); }
  std::vector<double> samples_ms() const { return numbers("samples_ms"); }
  std::vector<double> warmup_ms() const { return numbers("warmup_ms"); }
  std::vector<double> forward_samples_ms() const { return numbers("forward_samples_ms"); }

  // Returns the label of the row's run (label_of()), from the fields that the row has: "small
  // context 128 step fp32 fused".
  std::string label() const;

 private:
  Json cells_;
  std::shared_ptr<const Json> environment_;
};

std::vector<ResultRow> rows_of(const Table& table, const Json& environment);

enum class Severity {
  kNote,     // The number is right, but the reader must know something to use it.
  kDoubt,    // the number may be less certain than it seems
  kInvalid,  // the number is not what its label says
};
TRACESTEP_WORDS(Severity, "note", "doubt", "invalid");

// had_company() is true if other programs kept more than a tenth of a core busy while the row was
// measured; with the column kRoofCompany, while the row's ceiling was measured.
inline constexpr std::string_view kRoofCompany = "roof_others_cores";
bool had_company(const ResultRow& row, std::string_view column = "others_cores");

struct Verdict {
  std::string code;  // "launch_bound"
  Severity severity = Severity::kNote;
  std::string text;  // the figures, and what to do
};

struct RowCheck {
  std::string_view code;
  std::string_view doc;  // A sentence that says when the check reports.
  std::optional<Verdict> (*check)(const ResultRow& row);
  // True if the verdict is about recorded steps and not about timed ones.
  bool is_of_recording = false;
};
// Returns all checks of single rows, in the order of their reports.
std::span<const RowCheck> row_checks();

// Applies row_checks(). If other programs ran, a verdict that load may explain is at most a doubt.
std::vector<Verdict> judge(const ResultRow& row);

// status_of() is the row's status, except that "ok" becomes "spill" where more memory is in use
// than the device has: the time is that of moving memory, not of a step.
inline constexpr std::string_view kSpill = "spill";
std::string status_of(const ResultRow& row);

// A verdict of judge_together(), with the row's index. Its checks (validity_pairs.cpp) compare
// rows: a part with its whole, more work in less time, a cell measured twice, a speed that
// collapses with size. Verdicts name a text column "table": rows of several experiments may be
// judged together. Rows that differ in "kind" are not compared: their times per FLOP differ.
struct RowVerdict {
  std::size_t row = 0;
  Verdict verdict;
};
std::vector<RowVerdict> judge_together(std::span<const ResultRow> rows);
std::size_t pair_check_count();
// Returns the sentence about when the check with this code reports, whether of a row or of pairs;
// empty if there is no such check.
std::string_view doc_of(std::string_view code);
// Says what each of these codes stands for: "other programs kept cores busy".
std::vector<std::string> words_of_codes(std::span<const std::string> codes);
// The code of the verdict on a cell that was measured twice, with times apart beyond noise.
inline constexpr std::string_view kMeasuredApart = "measured_apart";

// Applies judge() and judge_together(); returns the verdicts of each row.
std::vector<std::vector<Verdict>> judge_all(std::span<const ResultRow> rows);

// Sums up verdicts, "ok", "note: launch_bound", "doubt: unsteady" or "invalid: two_graphs,
// unit_mix_up": the worst severity, with the codes of that severity.
std::string summary_of(std::span<const Verdict> verdicts);

// What summary_of() wrote, read back. Without a severity, the row has no verdict against it.
struct Judgement {
  std::optional<Severity> worst = {};
  std::vector<std::string> codes = {};
};
Judgement read_summary(std::string_view summary);

// Writes a line below a table: "doubt: small context 128 step fp32 fused: ... (unsteady)".
std::string verdict_line(const std::string& label, const Verdict& verdict);
// Returns the lines below a table: one per reason for a verdict, then how many rows stand without
// doubt. `what` names the rows, where they are not those of the table.
std::vector<std::string> validity_notes(std::span<const ResultRow> rows,
                                        const std::vector<std::vector<Verdict>>& verdicts,
                                        std::string_view what = "rows");
std::vector<std::string> validity_notes(std::span<const ResultRow> rows);
// True if a note is the last line of validity_notes(), which counts the sound rows.
bool is_count_of_sound_rows(std::string_view note);

// True if the verdict says that the row is not what its label says, or that its bytes are not those
// of its program: bytes and counts are then in doubt too. All other verdicts only concern times.
bool is_of_label(std::string_view code);

// Returns the verdict column of judged tables; is_verdict_column() is true for it.
Column verdict_column();
bool is_verdict_column(const Column& column);
// Puts summary_of() each row's verdicts into verdict_column(), null where the row has no numbers,
// and validity_notes() below the table. `rows`: those of the table, in its order.
void add_verdicts(Table& table, std::span<const ResultRow> rows);

}  // namespace tracestep
