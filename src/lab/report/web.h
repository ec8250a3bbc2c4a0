// The files of web/, as cmake/embed.cmake puts them into the library.
#pragma once

#include <string_view>

namespace tracestep::web {

extern const std::string_view kPageCss;
extern const std::string_view kPageJs;
extern const std::string_view kChartsJs;

}  // namespace tracestep::web
