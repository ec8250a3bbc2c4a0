// Messages and terminals get valid UTF-8 without control characters, however it is cut.
#include "base/utf8.h"

#include <algorithm>

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  for (std::size_t limit : {16u, 50u, 4096u}) {
    const std::string line = message_line(text, limit);
    require(line.size() <= limit && is_utf8(line));
    require(
        std::ranges::none_of(line, [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
  }
  require(is_utf8(printable(text)) && is_utf8(escaped(text)));
  if (is_utf8(text)) require(escaped(text).size() >= text.size());
  return 0;
}
