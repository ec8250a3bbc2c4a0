// Rows of JSON lines or of an array, as documents, prompts with answers and conversations. Broken
// rows are counted and named; what is taken can be read back, and every token is one of the
// tokenizer's.
#include "tokens/documents.h"

#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto tokenizer = byte_tokenizer();
  TextSource source;
  source.text = std::string(text_of(data, size));
  source.files = {"rows.json"};
  source.bounds = {{0, source.text.size()}};
  for (const char* chat : {"", "chatml", "llama-3", "mistral-v3"}) {
    for (const double most_broken : {0.0, 1.0}) {
      accepts([&] {
        const DocumentSet set = read_documents(
            source, {.chat = find_chat_template(chat), .end = {0}, .most_broken = most_broken},
            *tokenizer);
        require(set.documents > 0 && set.broken >= 0 && is_utf8(message_line(set.words)));
        require(most_broken > 0.0 || set.broken == 0);
        require(std::ssize(set.tokens->documents()) == set.documents);
        std::vector<std::int64_t> all(static_cast<std::size_t>(set.tokens->size()));
        set.tokens->read(0, all);
        for (const std::int64_t id : all) {
          require(id_of(id) >= 0 && id_of(id) < tokenizer->vocab_size());
        }
      });
    }
  }
  return 0;
}
