#include "tokens/chat_templates.h"

#include <algorithm>

#include "base/error.h"

namespace tracestep {
namespace {

using enum ChatTemplate::System;
using enum ChatTemplate::Trim;

constexpr ChatTurn of_header(std::string_view before) {
  return {before, "<|eot_id|>"};
}

// The known formats; their texts, dates included, are those of the templates beside the tokenizers.
constexpr ChatTemplate kTemplates[] = {
    {.name = "chatml",
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .assistant = {"<|im_start|>assistant\n", "<|im_end|>"},
     .after_assistant = "\n"},
    {.name = "qwen-2.5",
     .system = {"<|im_start|>system\n", "<|im_end|>\n"},
     .user = {"<|im_start|>user\n", "<|im_end|>\n"},
     .assistant = {"<|im_start|>assistant\n", "<|im_end|>"},
     .after_assistant = "\n",
     .usual_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
     .always_system = true},
    {.name = "llama-2",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {"<s>[INST] ", " [/INST]"},
     .assistant = {" ", " </s>"},
     .system_place = kInFirstUser,
     .trim = kAll,
     .alternates = true},
    {.name = "llama-3",
     .begin = "<|begin_of_text|>",
     .system = of_header("<|start_header_id|>system<|end_header_id|>\n\n"),
     .user = of_header("<|start_header_id|>user<|end_header_id|>\n\n"),
     .assistant = of_header("<|start_header_id|>assistant<|end_header_id|>\n\n"),
     .trim = kAll},
    {.name = "llama-3.1",
     .begin = "<|begin_of_text|>",
     .system = of_header("<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
                         "December 2023\nToday Date: 26 Jul 2024\n\n"),
     .user = of_header("<|start_header_id|>user<|end_header_id|>\n\n"),
     .assistant = of_header("<|start_header_id|>assistant<|end_header_id|>\n\n"),
     .always_system = true,
     .trim = kAll},
    {.name = "mistral-v1",
     .begin = "<s>",
     .system = {"", "\n\n"},
     .user = {" [INST] ", " [/INST]"},
     .assistant = {" ", "</s>"},
     .system_place = kInFirstUser,
     .alternates = true},
    {.name = "mistral-v3",
     .begin = "<s>",
     .system = {"", "\n\n"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", "</s>"},
     .system_place = kInFirstUser,
     .trim = kAssistant,
     .alternates = true},
    {.name = "gemma",
     .begin = "<bos>",
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>"},
     .after_assistant = "\n",
     .system_place = kRefused,
     .trim = kAll,
     .alternates = true},
    {.name = "phi-3",
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = {"<|assistant|>\n", "<|end|>"},
     .after_assistant = "\n",
     .end = "<|endoftext|>"},
    {.name = "granite",
     .system = {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
     .user = {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
     .assistant = {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>"},
     .after_assistant = "\n"},
    {.name = "zephyr",
     .system = {"<|system|>\n", "</s>\n"},
     .user = {"<|user|>\n", "</s>\n"},
     .assistant = {"<|assistant|>\n", "</s>"},
     .after_assistant = "\n"}};

// Removes ASCII white space from both ends, as Python's strip() does.
std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v\x1c\x1d\x1e\x1f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Writes a conversation as text, message by message, and marks the stretches that are trained.
class Conversation {
 public:
  explicit Conversation(const ChatTemplate& form) : form_(form) { out_.add(form.begin, false); }

  void add(const ChatMessage& message) {
    const bool is_first = !has_turn_;
    if (message.role == "system") return add_system(message.content);
    if (message.role != "user" && message.role != "assistant") {
      fail_input("messages", "the role \"{}\" is none of system, user, assistant", message.role);
    }
    const bool is_user = message.role == "user";
    if (form_.alternates && is_user == was_user_) {
      fail_input("messages", "{} knows turns of user and assistant, one after the other",
                 form_.name);
    }
    if (is_first && !has_system_ && form_.always_system) add_turn(form_.system, form_.usual_system);
    was_user_ = is_user;
    has_turn_ = true;
    is_user ? add_user(message.content) : add_assistant(message.content);
  }

  MarkedText finish() {
    if (!has_turn_) fail_input("messages", "there is none of user or assistant");
    out_.add(form_.end, false);
    return std::move(out_);
  }

 private:
  void add_turn(const ChatTurn& turn, std::string_view content) {
    out_.add(turn.before, false);
    out_.add(content, false);
    out_.add(turn.behind, false);
  }
  std::string_view trimmed(std::string_view content, bool is_assistant = false) const {
    const bool trims = form_.trim == kAll || (form_.trim == kAssistant && is_assistant);
    return trims ? stripped(content) : content;
  }

  void add_system(std::string_view content) {
    if (has_turn_ || has_system_) fail_input("messages", "a system message after the first");
    if (form_.system_place == kRefused) {
      fail_input("messages", "{} has no system messages", form_.name);
    }
    has_system_ = true;
    if (form_.system_place == kOwnTurn) return add_turn(form_.system, trimmed(content));
    for_user_ =
        std::string(form_.system.before) + std::string(content) + std::string(form_.system.behind);
  }
  void add_user(std::string_view content) {
    const std::string whole = for_user_ + std::string(content);
    for_user_.clear();
    add_turn(form_.user, trimmed(whole));
  }
  void add_assistant(std::string_view content) {
    out_.add(form_.assistant.before, false);
    out_.add(trimmed(content, true), true);
    out_.add(form_.assistant.behind, true);
    out_.add(form_.after_assistant, false);
  }

  const ChatTemplate& form_;
  MarkedText out_;
  std::string for_user_;  // the text that is put before the first user's content
  bool has_turn_ = false, has_system_ = false, was_user_ = false;
};

}  // namespace

void MarkedText::add(std::string_view piece, bool is_trained) {
  const std::size_t begin = text.size();
  text += piece;
  if (!is_trained || piece.empty()) return;
  if (!trained.empty() && trained.back().end == begin) {
    trained.back().end = text.size();
  } else {
    trained.push_back({begin, text.size()});
  }
}

std::span<const ChatTemplate> chat_templates() {
  return kTemplates;
}

const ChatTemplate* find_chat_template(std::string_view name) {
  const auto found = std::ranges::find(kTemplates, name, &ChatTemplate::name);
  return found == std::end(kTemplates) ? nullptr : found;
}

MarkedText rendered(const ChatTemplate& form, std::span<const ChatMessage> messages) {
  Conversation out(form);
  for (const ChatMessage& message : messages) out.add(message);
  return out.finish();
}

}  // namespace tracestep
