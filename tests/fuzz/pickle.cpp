// Pickles: every value of an accepted one can be looked at.
#include "lab/report/unpickle.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

namespace {

// Values may contain themselves: a few levels, a few items each.
void look(const PickleValue& value, int levels) {
  value.as_int();
  require(value.as_text().size() < std::size_t{1} << 31);
  if (const auto found = value.find("size")) found->as_int();
  require(!value.find("no such key"));
  for (std::size_t i = 0;
       levels > 0 && value.is_list() && i < std::min<std::size_t>(8, value.size()); ++i) {
    look(value[i], levels - 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = text_of(data, size);
  accepts([&] {
    const Pickle pickle(bytes, "input");
    look(pickle.root(), 3);
  });
  return 0;
}
