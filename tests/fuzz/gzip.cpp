// Compressed text: never more of it than is allowed, and the same after another round.
#include "lab/report/gzip.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = std::size_t{1} << 16;
  accepts([&] {
    const std::string text = gunzip(text_of(data, size), kMost);
    require(text.size() <= kMost);
    require(gunzip(gzip(text)) == text);
  });
  return 0;
}
