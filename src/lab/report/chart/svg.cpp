#include "lab/report/chart/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/own_file.h"
#include "base/utf8.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr double kLetterWidth = 7.3;  // of DejaVu Sans, the widest of the fonts asked for

constexpr std::string_view kPictureStyle =
    "text{fill:#1c2330;font:12px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "text.soft{fill:#5a6475}text.title{font-weight:600;font-size:14px}"
    "text.over{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
    ".ground{fill:#fff}.grid{stroke:#e6eaf0}.axis{stroke:#5a6475;fill:none}"
    ".roof{stroke:#5a6475;stroke-width:2;fill:none}"
    ".whisker{stroke:#1c2330;stroke-width:1.6;fill:none}.card{stroke:#5a6475;stroke-dasharray:2 3}"
    ".halo{stroke:#fff;stroke-width:4}"
    ".mark{fill:#1c2330}.line{fill:none;stroke-width:2}.under{stroke-width:6}.under.deep{stroke-"
    "width:10}.under.deeper{stroke-width:14}.spot{fill-opacity:.6;"
    "stroke:#fff}"
    ".dashed{stroke-dasharray:5 4}.ghost{fill:transparent}"
    ".divider{stroke:#5a6475;fill:none;vector-effect:non-scaling-stroke}";
constexpr const char* kColours[kChartColours] = {"#3b6fd4", "#e07b2a", "#2c9a6b",
                                                 "#c4417f", "#8058c8", "#b08a14",
                                                 "#3aa3b8", "#7a8494", "#d2554a"};

// Writes pixels, rounded to tenths.
std::string px(double value) {
  return fmt::format("{:g}", std::round(value * 10) / 10);
}

std::string picture_style() {
  std::string out(kPictureStyle);
  for (std::size_t i = 0; i < kChartColours; ++i) {
    out += fmt::format(".f{0}{{fill:{1}}}.s{0}{{stroke:{1}}}", i, kColours[i]);
  }
  return out;
}

}  // namespace

std::string fill_class(std::size_t index) {
  return fmt::format("f{}", index % kChartColours);
}

std::string stroke_class(std::size_t index) {
  return fmt::format("s{}", index % kChartColours);
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (char c : with_visible_marks(text)) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

void Svg::shape(std::string_view element, std::string_view css, const std::string& attributes,
                std::string_view tip) {
  body_ += fmt::format("<{} class=\"{}\" {}", element, css, attributes);
  body_ += tip.empty() ? std::string("/>\n")
                       : fmt::format("><title>{}</title></{}>\n", xml_escaped(tip), element);
}

void Svg::line(std::string_view css, double x1, double y1, double x2, double y2) {
  shape("line", css,
        fmt::format("x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"", px(x1), px(y1), px(x2), px(y2)), {});
}

void Svg::rect(std::string_view css, double x, double y, double width, double height,
               std::string_view tip) {
  shape("rect", css,
        fmt::format("x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", px(x), px(y), px(width),
                    px(height)),
        tip);
}

void Svg::circle(std::string_view css, double x, double y, double radius, std::string_view tip) {
  shape("circle", css, fmt::format("cx=\"{}\" cy=\"{}\" r=\"{}\"", px(x), px(y), px(radius)), tip);
}

void Svg::path(std::string_view css, std::string_view d) {
  shape("path", css, fmt::format("d=\"{}\"", d), {});
}

void Svg::text(std::string_view css, double x, double y, std::string_view words, Anchor anchor) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  body_ +=
      fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", css, px(x),
                  px(y), kAnchors[static_cast<std::size_t>(anchor)], xml_escaped(words));
}

void Svg::open(std::string_view element, std::string_view attributes) {
  body_ += fmt::format("<{} {}>\n", element, attributes);
  open_ += fmt::format("{} ", element);
}

void Svg::close() {
  TRACESTEP_CHECK(!open_.empty(), "no element is open");
  open_.pop_back();
  const std::size_t begin = open_.rfind(' ') + 1;  // npos + 1 is 0
  body_ += fmt::format("</{}>\n", open_.substr(begin));
  open_.resize(begin);
}

std::string Svg::finish(double width, double height, std::string_view label) const {
  TRACESTEP_CHECK(open_.empty(), "elements are open: {}", open_);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-label=\"{2}\">\n{3}</svg>\n",
      px(width), px(height), xml_escaped(label), body_);
}

namespace {

// Breaks a sentence into lines of at most `width` pixels.
std::vector<std::string> lines_of(std::string_view title, double width) {
  constexpr double kWiderThanText = 1.25;  // a title's letters
  std::vector<std::string> out;
  while (!title.empty()) {
    const std::size_t end = std::min(title.find(' '), title.size());
    const std::string word(title.substr(0, end));
    title.remove_prefix(std::min(end + 1, title.size()));
    const bool fits = !out.empty() && kWiderThanText * text_width(out.back() + word) < width;
    if (fits) {
      out.back() += " " + word;
    } else {
      out.push_back(word);
    }
  }
  return out;
}

double number_in(std::string_view svg, std::string_view attribute) {
  return std::strtod(svg.data() + svg.find(attribute) + attribute.size(), nullptr);
}

}  // namespace

std::string as_picture(std::string_view svg, std::string_view title) {
  constexpr double kLine = 19, kEdge = 8;
  TRACESTEP_CHECK(svg.starts_with("<svg "), "this is no drawing");
  const double width = number_in(svg, " width=\""), height = number_in(svg, " height=\"");
  const std::vector<std::string> lines = lines_of(title, width - 2 * kEdge);
  const double top = lines.empty() ? 0 : kLine * static_cast<double>(lines.size()) + 4;
  std::string words;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    words += fmt::format("<text class=\"title\" x=\"{}\" y=\"{}\">{}</text>\n", px(kEdge),
                         px(kLine * static_cast<double>(i + 1) - 2), xml_escaped(lines[i]));
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\">\n<!-- {2} -->\n<style>{3}</style>\n"
      "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n{4}<svg y=\"{5}\" {6}</svg>\n",
      px(width), px(height + top), kPictureMark, picture_style(), words, px(top), svg.substr(5));
}

double text_width(std::string_view text) {
  return kLetterWidth * static_cast<double>(display_width(std::string(text)));
}

}  // namespace tracestep
