// Tokenizers of published models: tokenizer.json, as the library `tokenizers` writes it.
#pragma once

#include <memory>
#include <string>

#include "train/tokenizer.h"

namespace tracestep {

// Byte-pair encoding by the content of a tokenizer.json; `origin` names it in messages. A text has
// the ids that `tokenizers` gives it without those that are set around a text (its
// add_special_tokens=False); it is neither cut nor padded. Bytes that are not UTF-8 become U+FFFD.
// Errors: kInput, naming the component or field that is not known here.
std::unique_ptr<Tokenizer> parse_tokenizer_json(const std::string& content,
                                                const std::string& origin);

}  // namespace tracestep
