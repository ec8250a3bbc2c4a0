// Text in lines of at most 100 columns: for help texts and generated pages.
#pragma once

#include <string>
#include <string_view>

namespace tracestep::cli {

// The words of `text` after `lead`, all lines indented by `indent` columns. A longer lead gets its
// own line. Ends with a newline.
std::string wrapped(std::string lead, std::size_t indent, std::string_view text);

}  // namespace tracestep::cli
