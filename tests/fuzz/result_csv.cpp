// CSV results.
#include <fstream>

#include "fuzz/fuzz_target.h"
#include "lab/compare/result_file.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The reader goes by the end of the name, which no file in memory has.
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("fuzz-{}.csv", ::getpid());
  std::ofstream(path, std::ios::binary) << text_of(data, size);
  accepts([&] { read_result_csv(path); });
  std::filesystem::remove(path);
  return 0;
}
