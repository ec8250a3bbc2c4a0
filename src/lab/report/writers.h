// Declares a writer for each format, each in its own file, and helpers of formats for people.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// How a terminal shows tables.
struct TextView {
  std::size_t width = 0;  // columns that do not fit are left out; 0: any width
  bool has_colour = false;
  std::size_t lines = 0;          // of a table: rows and notes beyond are left out; 0: any number
  std::string_view way_out = {};  // how to see the columns that are left out, which are then named
};
// Counts the parts of a table that had no room.
struct LeftOut {
  std::vector<std::string> columns = {};
  std::size_t rows = 0, notes = 0;
};
// Writes the table in so many columns and lines.
LeftOut write_table(const Table& table, const TextView& view, std::ostream& out);
void write_text(const Document& document, std::ostream& out, const TextView& view);
void write_text(const Document& document, std::ostream& out);  // of any width
void write_markdown(const Document& document, std::ostream& out);
void write_csv(const Document& document, std::ostream& out);
void write_json(const Document& document, std::ostream& out);
void write_latex(const Document& document, std::ostream& out);
void write_typst(const Document& document, std::ostream& out);

// A table for human readers: without data-only columns, every cell formatted with its unit, and no
// text that is more than a line or that moves a cursor.
struct DisplayTable {
  std::string title;
  std::vector<std::string> headers;
  std::vector<bool> is_right_aligned;  // numbers
  std::vector<bool> is_needed;         // keys and results, which get room before others
  std::vector<bool> is_whole;          // never cut
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;
};
DisplayTable display(const Table& table);
// True if people see nothing of the table: a head without rows says nothing.
inline bool is_silent(const Table& table) {
  return table.rows.empty() && table.notes.empty();
}
// True if rows differ in the column.
bool varies(const Table& table, std::size_t column);
// True if people see the column.
bool is_shown(const Table& table, std::size_t column);

// The table as a screen shows it: a column with one value for all rows stands in the title, one
// without any is left out. Results stay, whatever they hold.
Table on_screen(const Table& table);
// True if a note is about one column: it begins with that one's title, "energy: by the device's
// counter". A screen without the column goes without the note.
bool is_about(const std::string& note, const Column& column);

// Text as LaTeX prints it.
std::string latex_escaped(const std::string& text);

// The words of `text` in lines of at most `width` characters; 0: in one.
std::vector<std::string> in_lines(const std::string& text, std::size_t width);
// Is in_lines(), with "…" for what does not fit into `most` lines.
std::vector<std::string> cut_lines(std::string text, std::size_t width, std::size_t most);
// Flags and commands: each line ends behind a word, if it can before a flag, and nothing is cut.
std::vector<std::string> whole_lines(std::string text, std::size_t width);
// The width of the longest word, which a column must not be narrower than.
std::size_t longest_word(const std::string& text);
// Columns a terminal needs for `text`: one per UTF-8 character.
std::size_t display_width(const std::string& text);
// `text` filled up with spaces to `width`.
std::string padded(const std::string& text, std::size_t width, bool is_right_aligned);

}  // namespace tracestep
