#include "support/page_words.h"

#include <cctype>
#include <string_view>

namespace tracestep::testing {

PageWords words_of_page(std::string page) {
  const auto without = [&](const std::string& open, const std::string& close) {
    for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
      page.erase(at, page.find(close, at) + close.size() - at);
    }
  };
  page.erase(0, page.find("<body>"));
  without("<script", "</script>");
  without("<svg", "</svg>");  // a plot inside a drawing leaves the outer end, which is no word
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
