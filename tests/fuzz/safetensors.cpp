// Weights: every tensor of an accepted file can be found, and read or refused.
#include "weights/safetensors.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile bytes(text_of(data, size));
  accepts([&] {
    const SafetensorsFile file(bytes.path());
    for (const auto& entry : file.entries()) {
      require(file.find(entry.name) == &entry);
      accepts([&] { require(file.read(entry.name).bytes.size() == entry.end - entry.begin); });
    }
    require(file.find("no such tensor\x01") == nullptr);
  });
  return 0;
}
