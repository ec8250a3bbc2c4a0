// Memory snapshots, as pickle and as JSON.
#include "lab/snapshots/trace.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  accepts([&] {
    const MemoryTrace trace = read_trace(text_of(data, size), "input");
    require(!trace.events.empty() || !trace.there_before.empty());
  });
  return 0;
}
