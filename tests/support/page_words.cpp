#include "support/page_words.h"

#include <cctype>
#include <string_view>

namespace tracestep::testing {

namespace {

// Finds the end of the element that begins at `at`, which may hold others of its kind.
std::size_t end_of_element(const std::string& page, std::size_t at, const std::string& open,
                           const std::string& close) {
  int depth = 1;
  for (at += open.size(); depth > 0;) {
    const std::size_t inner = page.find(open, at), end = page.find(close, at);
    if (end == std::string::npos) return page.size();
    depth += inner < end ? 1 : -1;
    at = inner < end ? inner + open.size() : end + close.size();
  }
  return at;
}

}  // namespace

PageWords words_of_page(std::string page) {
  const auto without = [&](const std::string& open, const std::string& close) {
    for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
      page.erase(at, end_of_element(page, at, open, close) - at);
    }
  };
  page.erase(0, page.find("<body>"));
  without("<script", "</script>");
  without("<svg", "</svg>");
  without("<table", "</table>");
  without("<noscript", "</noscript>");
  without("<p class=\"paper", "</p>");
  PageWords out;
  int folded = 0;  // depth of closed details
  bool is_summary = false, is_word = false;
  for (std::size_t i = 0; i < page.size(); ++i) {
    if (page[i] == '<') {
      const std::string_view tag = std::string_view(page).substr(i, page.find('>', i) - i);
      if (tag.starts_with("<details")) ++folded;
      if (tag.starts_with("</details")) --folded;
      if (tag.starts_with("<summary")) is_summary = true;
      if (tag.starts_with("</summary")) is_summary = false;
      i += tag.size();
      if (!tag.starts_with("<span") && !tag.starts_with("</span")) is_word = false;
      continue;
    }
    const bool is_space = std::isspace(static_cast<unsigned char>(page[i])) != 0;
    if (!is_space && !is_word) {
      ++out.all;
      if (folded == 0 || (folded == 1 && is_summary)) ++out.before;
    }
    is_word = !is_space;
  }
  return out;
}

}  // namespace tracestep::testing
