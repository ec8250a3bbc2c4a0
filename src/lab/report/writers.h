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
  // The width of the screen in columns; table columns that do not fit are left out. 0: no limit.
  std::size_t width = 0;
  bool has_colour = false;
  // The most lines of a table; further rows and notes are left out. 0: no limit.
  std::size_t lines = 0;
  // A hint how to see the table columns that are left out, written after their names. Empty: none.
  std::string_view way_out = {};
};
// Counts the parts of a table that had no room.
struct LeftOut {
  std::vector<std::string> columns = {};
  std::size_t rows = 0, notes = 0;
};
// Writes the table within the columns and lines of `view`, and returns what had no room.
LeftOut write_table(const Table& table, const TextView& view, std::ostream& out);
void write_text(const Document& document, std::ostream& out, const TextView& view);
void write_text(const Document& document, std::ostream& out);  // Text of any width.
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
  std::vector<bool> is_needed;  // True for keys and results, which get room before other columns.
  std::vector<bool> is_whole;   // never cut
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;
};
DisplayTable display(const Table& table);
// True if a table would show people nothing, because it has no rows.
inline bool is_silent(const Table& table) {
  return table.rows.empty() && table.notes.empty();
}
// True if rows differ in the column.
bool varies(const Table& table, std::size_t column);
// True if people see the column.
bool is_shown(const Table& table, std::size_t column);

// Returns the table as a screen shows it. A column with the same value in all rows moves into the
// title, and an empty column is left out; columns marked is_result stay in any case.
Table on_screen(const Table& table);
// True if a note is about this column: it begins with the column's title, as in "energy: by the
// device's counter". A screen that lacks the column drops the note.
bool is_about(const std::string& note, const Column& column);

// Escapes a text for LaTeX.
std::string latex_escaped(const std::string& text);

// Breaks `text` between words into lines of at most `width` characters; 0: one line.
std::vector<std::string> in_lines(const std::string& text, std::size_t width);
// Breaks `text` as in_lines() does, into at most `most` lines; "…" ends the last one if it is cut.
std::vector<std::string> cut_lines(std::string text, std::size_t width, std::size_t most);
// Breaks flags and commands into lines between words, before a flag if possible. Nothing is
// cut.
std::vector<std::string> whole_lines(std::string text, std::size_t width);
// Returns the width of the longest word, which a column must not be narrower than.
std::size_t longest_word(const std::string& text);
// Returns the columns a terminal needs for `text`: one per UTF-8 character.
std::size_t display_width(const std::string& text);
// Fills `text` up with spaces to `width`.
std::string padded(const std::string& text, std::size_t width, bool is_right_aligned);

}  // namespace tracestep
