// Reads documents to train on: rows of JSON lines, and text files, each of which is one document.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokens/chat_templates.h"
#include "tokens/text_source.h"
#include "tokens/token_file.h"
#include "tokens/tokenizer.h"

namespace tracestep {

struct DocumentOptions {
  // The format of the rows with messages; nullptr: a row with messages counts as broken.
  const ChatTemplate* chat = nullptr;
  // The tokens to add after a text, and after the completion of a prompt. A conversation has its
  // own end.
  std::vector<std::int32_t> end;
  double most_broken = 0.01;  // The share of rows that may be broken; with more, reading fails.
};

struct DocumentSet {
  TokenSourcePtr tokens = {};
  std::int64_t documents = 0, broken = 0;
  // A summary for people: "1200 documents, 3 rows broken: chats.jsonl:17: messages: the role "tool"
  // is none of …".
  std::string words = {};
};

// Reads files that end in .jsonl, .ndjson or .json as rows, and any other file as one document. A
// row is an object with one of: text, a document; prompt and completion, of which the completion
// counts; messages, a list of {role, content}, of which the assistant's count. The tokens with
// which the tokenizer starts a text precede all documents but conversations, whose template has
// them. A row is broken if it has none of these, or nothing in it counts. Throws Error{kInput} for
// more broken rows than `most_broken`, and for no document at all.
DocumentSet read_documents(const TextSource& source, const DocumentOptions& options,
                           const Tokenizer& tokenizer);

}  // namespace tracestep
