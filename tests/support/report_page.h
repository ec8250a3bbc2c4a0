// What a page of a report carries.
#pragma once

#include <string>
#include <string_view>

namespace tracestep::testing {

// The JSON that was given to html_page(); empty where `page` is none.
std::string json_of_page(std::string_view page);

}  // namespace tracestep::testing
