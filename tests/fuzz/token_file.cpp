// Token files of all layouts: the first byte of the input says what --token-dtype is.
#include "tokens/token_file.h"

#include <array>

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::array<std::optional<TokenDType>, 3> dtypes = {std::nullopt, TokenDType::kUint16,
                                                           TokenDType::kUint32};
  const MemoryFile bytes(text_of(data + 1, size - 1));
  accepts([&] {
    const TokenSourcePtr tokens = open_token_file(bytes.path(), dtypes[data[0] % dtypes.size()]);
    std::array<std::int64_t, 17> row;
    tokens->read(tokens->size() - 1, row);
    accepts([&] { check_vocabulary(*tokens, 50257); });
    accepts([&] {
      const TokenSplit split = split_tokens(tokens, 0.1);
      require(split.train->size() + split.validation->size() == tokens->size());
      split.validation->read(3, row);
    });
  });
  return 0;
}
