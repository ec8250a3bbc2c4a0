// One writer per format, each in its own file, and helpers of the human-readable formats.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

void write_text(const Document& document, std::ostream& out);
void write_markdown(const Document& document, std::ostream& out);
void write_csv(const Document& document, std::ostream& out);
void write_json(const Document& document, std::ostream& out);
void write_latex(const Document& document, std::ostream& out);
void write_typst(const Document& document, std::ostream& out);

// A table for human readers: without data-only columns, every cell formatted with its unit.
struct DisplayTable {
  std::vector<std::string> headers;
  std::vector<bool> is_right_aligned;  // numbers
  std::vector<std::vector<std::string>> rows;
};
DisplayTable display(const Table& table);
// Whether people see the column.
bool is_shown(const Table& table, std::size_t column);

// Columns a terminal needs for `text`: one per UTF-8 character.
std::size_t display_width(const std::string& text);
// `text` filled up with spaces to `width`.
std::string padded(const std::string& text, std::size_t width, bool is_right_aligned);

}  // namespace tracestep
