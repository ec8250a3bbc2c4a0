// SVG as text. Looks are classes of a style sheet (web/page.css on the page, picture_style() in
// files): f0 to f8 fill and s0 to s8 draw lines in the colours of series.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

inline constexpr std::size_t kChartColours = 9;
// Names the class that fills with the colour of series `index`: "f3".
std::string fill_class(std::size_t index);
std::string stroke_class(std::size_t index);

// Escapes a text for the contents of an element or an attribute.
std::string xml_escaped(std::string_view text);

enum class Anchor { kStart, kMiddle, kEnd };

class Svg {
 public:
  void line(std::string_view css, double x1, double y1, double x2, double y2);
  // Draws a rectangle. `tip`: what it stands for; browsers show that.
  void rect(std::string_view css, double x, double y, double width, double height,
            std::string_view tip = {});
  void circle(std::string_view css, double x, double y, double radius, std::string_view tip = {});
  void path(std::string_view css, std::string_view d);
  void text(std::string_view css, double x, double y, std::string_view words,
            Anchor anchor = Anchor::kStart);
  // Opens an element, which holds what is drawn until close(). `attributes` are written as they
  // are.
  void open(std::string_view element, std::string_view attributes);
  void close();

  // Returns the whole drawing. `label`: what it shows, for readers that do not see it.
  std::string finish(double width, double height, std::string_view label) const;

 private:
  void shape(std::string_view element, std::string_view css, const std::string& attributes,
             std::string_view tip);
  std::string body_, open_;
};

// Makes a drawing of finish() a file of its own: with style, a ground and, above it, the title.
std::string as_picture(std::string_view svg, std::string_view title = {});

// Returns an upper bound of the width that a text of 12 pixels takes.
double text_width(std::string_view text);

}  // namespace tracestep
