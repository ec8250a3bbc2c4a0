// Wraps texts into lines of a given width.
#include <algorithm>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

// Returns how many bytes the first `count` characters have.
std::size_t bytes_of(const std::string& text, std::size_t count) {
  std::size_t at = 0, seen = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0u) != 0x80u;
    if (begins && ++seen > count) break;
  }
  return at;
}

// Returns the end of a line of at most `end` bytes: at a blank, else after a separator, else inside
// a word.
std::size_t end_of_line(const std::string& text, std::size_t end) {
  const std::size_t blank = text.rfind(' ', end), least = end / 4;
  if (blank != std::string::npos && blank > 0 && blank >= least) return blank;
  const std::size_t separator = text.find_last_of("/.:_,;(", end - 1);
  return separator != std::string::npos && separator > least ? separator + 1 : end;
}

}  // namespace

std::vector<std::string> whole_lines(std::string text, std::size_t width) {
  std::vector<std::string> out;
  while (display_width(text) > width) {
    const std::size_t last = bytes_of(text, width), flag = text.rfind(" --", last);
    std::size_t end = flag != std::string::npos && flag > 0 ? flag : text.rfind(' ', last);
    if (end == std::string::npos || end == 0) end = std::min(text.find(' '), text.size());
    out.push_back(text.substr(0, end));
    text.erase(0, end + 1);
  }
  if (!text.empty() || out.empty()) out.push_back(std::move(text));
  return out;
}

std::vector<std::string> cut_lines(std::string text, std::size_t width, std::size_t most) {
  std::vector<std::string> out;
  while (display_width(text) > width && out.size() + 1 < most) {
    const std::size_t end = end_of_line(text, bytes_of(text, width));
    out.push_back(text.substr(0, end));
    text.erase(0, end + (text[end] == ' ' ? 1 : 0));
  }
  if (display_width(text) > width) text = text.substr(0, bytes_of(text, width - 1)) + "…";
  out.push_back(std::move(text));
  return out;
}

std::size_t longest_word(const std::string& text) {
  std::size_t out = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    out = std::max(out, display_width(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return out;
}

std::vector<std::string> in_lines(const std::string& text, std::size_t width) {
  std::vector<std::string> out = {text};
  while (width > 0 && display_width(out.back()) > width) {
    const std::string last = out.back();
    const std::size_t end = end_of_line(last, bytes_of(last, width));
    out.back() = last.substr(0, end);
    out.push_back(last.substr(end + (last[end] == ' ' ? 1 : 0)));
  }
  return out;
}

}  // namespace tracestep
