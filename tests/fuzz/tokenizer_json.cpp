// A tokenizer.json, and what it makes of a text.
#include "tokens/tokenizer_kinds.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  accepts([&] {
    const auto tokenizer = parse_tokenizer_json(std::string(text_of(data, size)), "file");
    for (const char* text :
         {"ab ab  <s> a\n\n 12", "It's e\u0301 \u6f22\u5b57 \u2581x\xff", "aaaaaaaa"}) {
      std::vector<std::int64_t> ids;
      for (std::int32_t id : tokenizer->encode(text)) {
        require(id >= 0 && id < tokenizer->vocab_size());
        ids.push_back(id);
      }
      tokenizer->decode(ids);
    }
  });
  return 0;
}
