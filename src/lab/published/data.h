// The files of data/, as cmake/embed.cmake puts them into the library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tracestep::published {

extern const std::string_view kStudiesCsv;
extern const std::string_view kSizesCsv;
extern const std::string_view kTimesCsv;
extern const std::string_view kPeaksCsv;
extern const std::string_view kAllocationsCsv;
extern const std::string_view kLargestCsv;
extern const std::string_view kAttentionCsv;
extern const std::string_view kAttentionPartsCsv;
extern const std::string_view kKernelsCsv;
extern const std::string_view kProductSharesCsv;
extern const std::string_view kCompiledCsv;
extern const std::string_view kPrintedArithmeticCsv;
extern const std::string_view kFiguresCsv;
extern const std::string_view kDevicesCsv;

struct File {
  std::string_view name, csv;  // "times"
};
const std::vector<File>& files();

// The number in `column` of the one row of a file that has all of `cells`: "small" in any column,
// "context=128" in that one. CHECKs that the file and the column are there, and exactly one such
// row.
double number_at(std::string_view file, std::string_view column,
                 const std::vector<std::string>& cells);

}  // namespace tracestep::published
