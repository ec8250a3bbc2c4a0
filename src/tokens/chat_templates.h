// Conversations as texts, in the forms that families of published models were trained on. The forms
// are a list of names; no template language is run.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

struct ChatMessage {
  std::string role, content;  // role: "system", "user" or "assistant"
};

// A text, and the stretches of its bytes whose loss counts, in order.
struct MarkedText {
  struct Stretch {
    std::size_t begin, end;
  };
  std::string text;
  std::vector<Stretch> trained = {};

  void add(std::string_view piece, bool is_trained);
};

// The texts before and behind the content of a message.
struct ChatTurn {
  std::string_view before = {}, behind = {};
};

struct ChatTemplate {
  enum class System {
    kOwnTurn,
    kInFirstUser,  // in front of the first user's content
    kRefused,
  };
  enum class Trim { kNothing, kAssistant, kAll };

  std::string_view name;
  std::string_view begin = {};  // of the conversation
  ChatTurn system = {}, user = {}, assistant = {};
  std::string_view after_assistant = {};  // is not trained, as `assistant.behind` is
  std::string_view usual_system = {};     // the content of a system turn that nobody gives
  bool always_system = false;             // there is such a turn
  std::string_view end = {};              // of the conversation
  System system_place = System::kOwnTurn;
  Trim trim = Trim::kNothing;
  bool alternates = false;  // user, assistant, user, … behind the system's
};

std::span<const ChatTemplate> chat_templates();
// nullptr: there is none of this name.
const ChatTemplate* find_chat_template(std::string_view name);

// The conversation as a text; the assistant's contents count, and what ends their turns. Errors:
// kInput for another role, an order that the family does not know, and no messages.
MarkedText rendered(const ChatTemplate& form, std::span<const ChatMessage> messages);

}  // namespace tracestep
