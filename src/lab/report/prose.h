// Text of a report: paragraphs, and blocks of code between lines of three backquotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

struct Paragraph {
  std::string text;
  bool is_code = false;
};
std::vector<Paragraph> paragraphs_of(std::string_view text);

// Writes headings, paragraphs and pictures in the syntax of a document format. The format's table
// writer writes the tables.
class Prose {
 public:
  // Writes in this format: kMarkdown, kLatex or kTypst.
  explicit Prose(Format format);

  std::string begin(std::string_view title) const;
  std::string end() const;
  std::string heading(int level, std::string_view text) const;  // 2 or 3
  std::string item(std::string_view text) const;
  // Returns a paragraph that opens with `lead` in bold and ends with `code`; each may be empty.
  std::string paragraph(std::string_view lead, std::string_view text,
                        std::string_view code = {}) const;
  // Returns a picture with the description `words`: the file `stem`.svg (for LaTeX `stem`.png)
  // beside the document. LaTeX has no place for the description and drops it.
  std::string picture(std::string_view stem, std::string_view words) const;
  // Writes a text of several paragraphs, as paragraphs_of() splits it.
  std::string reading(std::string_view text) const;
  std::string table(const Table& table) const;

 private:
  Format format_;
};

}  // namespace tracestep
