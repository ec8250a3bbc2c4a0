// Json: what is read and written again reads back equal.
#include "base/json.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  accepts([&] {
    const Json json = Json::parse(text_of(data, size), "input");
    for (int indent : {-1, 2}) require(Json::parse(json.dump(indent), "output") == json);
  });
  return 0;
}
