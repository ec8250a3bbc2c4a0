// How long a page of a study is for its reader.
#pragma once

#include <cstddef>
#include <string>

namespace tracestep::testing {

// Words outside of tables and drawings, and those that are there before anything is unfolded.
struct PageWords {
  std::size_t all = 0, before = 0;
};
PageWords words_of_page(std::string page);

}  // namespace tracestep::testing
