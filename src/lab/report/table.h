// The one table model that every command fills and every writer prints. A cell holds the raw value
// (bytes as bytes, times in the column's unit); the writers format it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum_words.h"
#include "base/error.h"
#include "base/json.h"

namespace tracestep {

enum class ColumnKind {
  kText,
  kInt,
  kReal,
  kBytes,  // whole bytes; shown as "1.50 GiB"
  kBool,
  kReals,       // a list of numbers: only in csv and json
  kStructured,  // an object or a list of objects: only in csv and json
};
TRACESTEP_WORDS(ColumnKind, "text", "int", "real", "bytes", "bool", "reals", "structured");

// States if a cell rests on measured times, which differ from run to run: on several samples, or on
// one measurement.
enum class Timing { kNone, kSampled, kSingle };

// The role of a column for code that treats tables by rule: `compare`, row labels, charts, and
// readers of stored results, whose columns carry their roles.
enum class ColumnRole : std::uint8_t {
  kShown,    // none of the following
  kKey,      // says what the row is of: rows with equal keys are the same
  kSamples,  // a list of measured times; its name ends with "samples_ms"
  kExact,    // bytes, launches, FLOPs, errors: the same in every run of one program; more is worse
  kPart,     // a part of the figure `whole` of the one cell that the table is of
  kFollows,  // a name, count or verdict that follows from the other columns of its row
};
TRACESTEP_WORDS(ColumnRole, "shown", "key", "samples", "exact", "part", "follows");

// True if the cell's value is of the kind. An empty cell fits every kind.
bool fits(const Json& cell, ColumnKind kind);

struct Column {
  std::string name = {};   // the key in csv and json: "mean_ms"
  std::string title = {};  // the shown title; `name` when empty
  std::string unit = {};   // "ms"; shown after the title
  ColumnKind kind = ColumnKind::kText;
  int digits = -1;  // decimals of a real number; -1 gives four significant digits
  std::string description = {};
  bool data_only = false;  // True: the column is written to csv and json only.
  bool if_varies = false;  // True: the column is shown only if rows differ in it.
  // True: the column is why people read the table, so a narrow screen keeps it before others.
  bool is_result = false;
  // True: texts are never cut and break only between words, as flags that people copy.
  bool is_whole = false;
  Timing timing = Timing::kNone;  // With kNone timing_of() derives it from the unit.
  // Replacements of texts for people: {{"oom", "does not fit"}}.
  std::vector<std::pair<std::string, std::string>> words = {};
  ColumnRole role = ColumnRole::kShown;
  // With kPart: the name of the column that has the whole; empty if no column has it.
  std::string whole = {};
};

// Returns the column's own timing, or what follows from its unit: milliseconds, GB/s.
Timing timing_of(const Column& column);

struct Table {
  std::string name = {};   // the key of this table in json
  std::string title = {};  // one line above it; may be empty
  std::vector<Column> columns = {};
  std::vector<std::vector<Json>> rows = {};  // null is an empty cell
  std::vector<std::string> notes = {};       // one line each, below it

  // Returns the place of a column; nullopt: there is none with this name.
  std::optional<std::size_t> index_of(std::string_view column) const;

  // Adds a row of one cell per column. CHECKs that the number and the types of the cells fit.
  void add_row(std::vector<Json> cells);
  // Adds a row with these cells, given by column name; other cells stay empty.
  void add_cells(std::initializer_list<std::pair<std::string_view, Json>> cells);
};

// Makes a table with "item" and "value" of every scalar member. People read the words of a name and
// its unit: "memory total" and "23.54 GiB" for "memory_total_bytes".
Table key_value_table(std::string name, std::string title, const Json& object);

struct Document {
  std::string schema;  // names the layout of the rows: "tracestep.bench/1"
  Json environment;
  std::vector<Table> tables;
  std::string answer = {};  // the sentence that a screen shows first; empty: none
};

enum class Format { kText, kMarkdown, kCsv, kJson, kLatex, kTypst };

inline constexpr std::string_view kFormatNames = "text, markdown, csv, json, latex, typst";
// Returns the format with this name; throws Error{kUsage} naming `where` if it is none of them.
Format parse_format(const About& where, std::string_view name);
std::string_view name_of(Format format);
// Endings of file names that name a format (".json"); format_of_ending() returns the format of one,
// nullopt for another ending.
inline constexpr std::string_view kFormatEndings = ".txt, .md, .csv, .json, .tex or .typ";
std::optional<Format> format_of_ending(std::string_view ending);

// Writes all tables. json: {"schema", "answer", "environment", "columns", "rows", "notes"} of the
// first table; with more than one, all of them also under "tables" by name. csv: RFC 4180, with an
// empty line between tables.
void write(const Document& document, Format format, std::ostream& out);
std::string to_string(const Document& document, Format format);
Json to_json(const Document& document);

// Returns the text of a file in this format, with the mark by which a later run knows that it may
// replace it: a comment, or in CSV quotes around the first name.
std::string marked(std::string text, Format format, std::string_view schema);

// Writes to the file `path`, marked, which appears whole or not at all, or to stdout when it is
// empty. Throws Error{kOutput} when that fails; call check_writable() of base/output_file.h before
// long work.
void write_output(const Document& document, Format format, const std::string& path);

}  // namespace tracestep
