// Documents to train on: rows of JSON lines, and files of text, each of which is one.
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
  const ChatTemplate* chat = nullptr;  // of rows of messages; nullptr: such rows are broken
  // Tokens behind a text, and behind what answers a prompt. A conversation has its own end.
  std::vector<std::int32_t> end;
  double most_broken = 0.01;  // share of the rows; with more of them nothing is trained
};

struct DocumentSet {
  TokenSourcePtr tokens = {};
  std::int64_t documents = 0, broken = 0;
  // "1200 documents, 3 rows broken: chats.jsonl:17: messages: the role "tool" is none of …".
  std::string words = {};
};

// Reads files that end in .jsonl, .ndjson or .json as rows, each an object with one of
//   text: a document;
//   prompt, completion: of which the second counts;
//   messages: a list of {role, content}, of which the assistant's count;
// and any other file as one document. What the tokenizer sets before a text is set before all but
// conversations, whose template has it. A row is broken if it is none of these or nothing in it
// counts. Errors: kInput for more broken rows than `most_broken`, and for no document at all.
DocumentSet read_documents(const TextSource& source, const DocumentOptions& options,
                           const Tokenizer& tokenizer);

}  // namespace tracestep
