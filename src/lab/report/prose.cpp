#include "lab/report/prose.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

struct Around {
  const char *before, *after;
};

// The markup of a format around each kind of text, to which `escape` is applied before.
struct Syntax {
  std::string (*escape)(std::string_view text);
  Around title, section, part, plain, strong, code, item;
  const char* end;
};

// Escapes what Markdown, or HTML made of it, would take for an element or an address.
std::string markdown_escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : ' ';
    const bool begins_element =
        text[i] == '<' && (std::isalpha(static_cast<unsigned char>(next)) != 0 ||
                           std::string_view("/!?").find(next) != std::string_view::npos);
    if (begins_element || (text[i] == ']' && next == '(')) out += '\\';
    out += text[i];
  }
  return out;
}

// Writes code between more backquotes than follow each other in the text.
std::string markdown_code(std::string_view text) {
  std::size_t longest = 0, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`'), space = longest == 0 ? "" : " ";
  return fence + space + std::string(text) + space + fence;
}

// Escapes a text of several lines, whose blocks of code stay as they are.
std::string markdown_reading(std::string_view text) {
  std::string out;
  for (bool is_code = false; !text.empty();) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    const bool is_fence = line.starts_with("```");
    out += is_code || is_fence ? std::string(line) : markdown_escaped(line);
    is_code = is_code != is_fence;
  }
  return out;
}

// Writes a string of Typst's code, in which nothing can be taken for markup.
std::string typst_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out + "\"";
}

constexpr const char* kLatexTitle =
    "% For lualatex or xelatex.\n"
    "\\documentclass[10pt]{article}\n"
    "\\usepackage[a4paper,margin=18mm]{geometry}\n"
    "\\usepackage{fontspec,booktabs,float,etoolbox,adjustbox,graphicx}\n"
    "\\IfFontExistsTF{DejaVu Serif}{\\setmainfont[Scale=0.85]{DejaVu Serif}}{}\n"
    "\\IfFontExistsTF{DejaVu Sans Mono}{\\setmonofont[Scale=0.8]{DejaVu Sans Mono}}{}\n"
    "% Tables stand where they are written, no wider than the text.\n"
    "\\floatplacement{table}{H}\n"
    "\\BeforeBeginEnvironment{tabular}{\\begin{adjustbox}{max width=\\linewidth}}\n"
    "\\AfterEndEnvironment{tabular}{\\end{adjustbox}}\n"
    "\\setlength{\\emergencystretch}{3em}\n"
    "\\title{";

const Syntax& syntax_of(Format format) {
  static const Syntax markdown = {.escape = markdown_escaped,
                                  .title = {"# ", "\n\n"},
                                  .section = {"\n## ", "\n\n"},
                                  .part = {"\n### ", "\n"},
                                  .plain = {"", ""},
                                  .strong = {"**", "**"},
                                  .code = {},  // markdown_code()
                                  .item = {"- ", "\n"},
                                  .end = ""};
  static const Syntax latex = {
      .escape = [](std::string_view text) { return latex_escaped(std::string(text)); },
      .title = {kLatexTitle, "}\n\\date{}\n\\begin{document}\n\\maketitle\n\n"},
      .section = {"\n\\section*{", "}\n\n"},
      .part = {"\n\\subsection*{", "}\n"},
      .plain = {"", ""},
      .strong = {"\\textbf{", "}"},
      .code = {"\\texttt{", "}"},
      .item = {"\\par\\noindent\\textbullet{} ", "\n"},
      .end = "\n\\end{document}\n"};
  static const Syntax typst = {
      .escape = typst_string,
      .title = {"#set page(margin: 18mm)\n#set text(size: 9pt)\n#set table(inset: 3pt)\n"
                "#show table: set text(size: 7.5pt)\n#set figure.caption(position: top)\n"
                "#show figure: set block(breakable: true)\n= #",
                ";\n\n"},
      .section = {"\n== #", ";\n\n"},
      .part = {"\n=== #", ";\n"},
      .plain = {"#", ";"},
      .strong = {"#strong(", ");"},
      .code = {"#raw(", ");"},
      .item = {"- #", ";\n"},
      .end = ""};
  TRACESTEP_CHECK(
      format == Format::kMarkdown || format == Format::kLatex || format == Format::kTypst,
      "a document in another format");
  return format == Format::kMarkdown ? markdown : format == Format::kLatex ? latex : typst;
}

std::string wrap(const Syntax& syntax, const Around& around, std::string_view text) {
  return around.before + syntax.escape(text) + around.after;
}

std::string code_block(Format format, std::string_view text) {
  if (format == Format::kTypst) return fmt::format("\n#raw(block: true, {})\n", typst_string(text));
  return fmt::format("\n\\begin{{verbatim}}\n{}\n\\end{{verbatim}}\n", text);
}

}  // namespace

std::vector<Paragraph> paragraphs_of(std::string_view text) {
  constexpr std::string_view kFence = "```";
  std::vector<Paragraph> out;
  while (!text.empty()) {
    const bool is_code = text.starts_with(kFence);
    const std::string_view mark = is_code ? "\n```" : "\n\n";
    const std::size_t end = std::min(text.find(mark, 1), text.size());
    std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + mark.size(), text.size()));
    while (text.starts_with('\n')) text.remove_prefix(1);
    if (is_code) part.remove_prefix(std::min(part.find('\n') + 1, part.size()));
    out.push_back({std::string(part), is_code});
  }
  return out;
}

Prose::Prose(Format format) : format_(format) {}

std::string Prose::begin(std::string_view title) const {
  const Syntax& syntax = syntax_of(format_);
  return wrap(syntax, syntax.title, title);
}

std::string Prose::end() const {
  return syntax_of(format_).end;
}

std::string Prose::heading(int level, std::string_view text) const {
  const Syntax& syntax = syntax_of(format_);
  return wrap(syntax, level == 2 ? syntax.section : syntax.part, text);
}

std::string Prose::item(std::string_view text) const {
  const Syntax& syntax = syntax_of(format_);
  return wrap(syntax, syntax.item, text);
}

std::string Prose::paragraph(std::string_view lead, std::string_view text,
                             std::string_view code) const {
  const Syntax& syntax = syntax_of(format_);
  std::string out = "\n";
  if (!lead.empty()) out += wrap(syntax, syntax.strong, lead) + " ";
  out += wrap(syntax, syntax.plain, text);
  if (!code.empty()) {
    const bool is_markdown = format_ == Format::kMarkdown;
    out += " " + (is_markdown ? markdown_code(code) : wrap(syntax, syntax.code, code)) +
           wrap(syntax, syntax.plain, ".");
  }
  return out + "\n";
}

std::string Prose::picture(std::string_view stem, std::string_view words) const {
  switch (format_) {
    case Format::kLatex:
      return fmt::format(
          "\n\\IfFileExists{{{0}.png}}{{\\par\\includegraphics[width=0.8\\linewidth]{{{0}.png}}"
          "\\par}}{{}}\n",
          stem);
    case Format::kTypst:
      return fmt::format("\n#image({}, width: 80%, alt: {})\n",
                         typst_string(fmt::format("{}.svg", stem)), typst_string(words));
    default: return fmt::format("\n![{}]({}.svg)\n", markdown_escaped(words), stem);
  }
}

std::string Prose::reading(std::string_view text) const {
  if (format_ == Format::kMarkdown) return markdown_reading(text) + "\n";
  std::string out;
  for (const Paragraph& part : paragraphs_of(text)) {
    out += part.is_code ? code_block(format_, part.text) : paragraph({}, part.text);
  }
  return out;
}

std::string Prose::table(const Table& table) const {
  return '\n' + to_string({"", Json::object(), {table}}, format_);
}

}  // namespace tracestep
