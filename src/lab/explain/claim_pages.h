// The files of claims/, as cmake/embed.cmake puts them into the library.
#pragma once

#include <string_view>

namespace tracestep::claim_pages {

extern const std::string_view kTimeMd;
extern const std::string_view kKernelsMd;
extern const std::string_view kNumbersMd;
extern const std::string_view kMemoryMd;
extern const std::string_view kAttentionMd;
extern const std::string_view kHandoutMd;

}  // namespace tracestep::claim_pages
