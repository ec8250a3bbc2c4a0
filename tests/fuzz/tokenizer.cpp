// Saved tokenizers of both kinds, and what they make of a text.
#include "tokens/tokenizer.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile bytes(text_of(data, size));
  accepts([&] {
    const auto tokenizer = load_tokenizer(bytes.path());
    std::vector<std::int64_t> ids;
    for (std::int32_t id : tokenizer->encode("The step \xe6\xbc\xa2\n  12\xff")) {
      require(id >= 0 && id < tokenizer->vocab_size());
      ids.push_back(id);
    }
    tokenizer->decode(ids);
  });
  return 0;
}
