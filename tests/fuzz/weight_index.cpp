// The index of a published model's shards: no accepted one leads out of its folder.
#include "fuzz/fuzz_target.h"
#include "weights/weight_files.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  accepts([&] {
    for (const auto& [tensor, file] : parse_weight_index(text_of(data, size), "index")) {
      require(!file.empty() && file != "." && file != "..");
      require(std::filesystem::path(file).filename() == file);
      require(file.find('\0') == std::string::npos);
    }
  });
  return 0;
}
