// JSON results, compared with themselves.
#include "fuzz/fuzz_target.h"
#include "lab/compare/compare.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile bytes(text_of(data, size));
  accepts([&] {
    const ResultFile result = read_result(bytes.path());
    if (result.cells().size() <= 2) compare_results(result, result, {});  // 4000 resamples a row
  });
  return 0;
}
