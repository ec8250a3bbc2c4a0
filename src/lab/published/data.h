// The files of data/, as cmake/embed.cmake puts them into the library.
#pragma once

#include <string_view>

namespace tracestep::published {

extern const std::string_view kStudiesCsv;
extern const std::string_view kTimesCsv;
extern const std::string_view kPeaksCsv;
extern const std::string_view kAttentionCsv;
extern const std::string_view kSharesCsv;
extern const std::string_view kCompiledCsv;
extern const std::string_view kDevicesCsv;

}  // namespace tracestep::published
