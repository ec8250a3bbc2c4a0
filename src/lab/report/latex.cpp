// LaTeX tables in the style of the booktabs package.
#include <ostream>

#include "lab/report/writers.h"

namespace tracestep {

std::string latex_escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '\\': out += "\\textbackslash{}"; break;
      case '~': out += "\\textasciitilde{}"; break;
      case '^': out += "\\textasciicircum{}"; break;
      case '<': out += "\\textless{}"; break;
      case '>': out += "\\textgreater{}"; break;
      case '"': out += "\\textquotedbl{}"; break;
      // Braces, so that "--flag" does not become a dash and "[" no optional argument after "\\".
      case '-': out += "-{}"; break;
      case '[': out += "{[}"; break;
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        out += '\\';
        out += c;
        break;
      default: out += c;
    }
  }
  return out;
}

namespace {

void write_line(const std::vector<std::string>& cells, std::ostream& out) {
  for (std::size_t c = 0; c < cells.size(); ++c)
    out << (c > 0 ? " & " : "  ") << latex_escaped(cells[c]);
  out << " \\\\\n";
}

void write_latex_table(const Table& table, std::ostream& out) {
  const DisplayTable shown = display(table);
  out << "\\begin{table}\n";
  if (!shown.title.empty()) out << "\\caption{" << latex_escaped(shown.title) << "}\n";
  if (!shown.rows.empty()) {
    out << "\\centering\n\\begin{tabular}{";
    for (bool right : shown.is_right_aligned) out << (right ? 'r' : 'l');
    out << "}\n\\toprule\n";
    write_line(shown.headers, out);
    out << "\\midrule\n";
    for (const auto& row : shown.rows) write_line(row, out);
    out << "\\bottomrule\n\\end{tabular}\n";
  }
  for (const std::string& note : shown.notes) out << "\\par\\small " << latex_escaped(note) << "\n";
  out << "\\end{table}\n";
}

}  // namespace

void write_latex(const Document& document, std::ostream& out) {
  out << "% Needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}.\n";
  for (const Table& table : document.tables) {
    if (!is_silent(table)) write_latex_table(table, out);
  }
}

}  // namespace tracestep
