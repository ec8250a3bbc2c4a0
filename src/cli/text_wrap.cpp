#include "cli/text_lines.h"

#include <algorithm>

#include "lab/report/writers.h"

namespace tracestep::cli {
namespace {

constexpr std::size_t kColumns = 100;

}  // namespace

std::string wrapped(std::string lead, std::size_t indent, std::string_view text) {
  std::string out, line = std::move(lead);
  if (line.size() < indent) line.resize(indent, ' ');
  if (line.size() > indent) {
    out += line + "\n";
    line.assign(indent, ' ');
  }
  bool is_first = true;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (!is_first && display_width(line) + 1 + display_width(std::string(word)) > kColumns) {
      out += line + "\n";
      line.assign(indent, ' ');
      is_first = true;
    }
    if (!is_first) line += ' ';
    line += word;
    is_first = false;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out + line + "\n";
}

}  // namespace tracestep::cli
