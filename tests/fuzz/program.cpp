// Programs as text: what is accepted prints, and reads back as the same program.
#include "fuzz/fuzz_target.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ops/functions.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool registered = (ops::register_all(), true);
  require(registered);
  accepts([&] {
    const Program program = parse_program(text_of(data, size));
    require(parse_program(print(program, {.locations = true})) == program);
  });
  return 0;
}
