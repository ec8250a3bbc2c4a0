// Writes conversations as texts, in the formats with which families of published models were
// trained. Formats are chosen from a list of names; no template language is interpreted.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

struct ChatMessage {
  std::string role, content;  // `role`: "system", "user" or "assistant".
};

// A text, and the ranges of its bytes whose loss counts, in order.
struct MarkedText {
  struct Stretch {
    std::size_t begin, end;
  };
  std::string text;
  std::vector<Stretch> trained = {};

  void add(std::string_view piece, bool is_trained);
};

// The texts before and after (`behind`) the content of a message.
struct ChatTurn {
  std::string_view before = {}, behind = {};
};

struct ChatTemplate {
  enum class System {
    kOwnTurn,
    kInFirstUser,  // The system's content stands before the first user's content.
    kRefused,
  };
  enum class Trim { kNothing, kAssistant, kAll };

  std::string_view name;
  std::string_view begin = {};  // The text at the begin of a conversation.
  ChatTurn system = {}, user = {}, assistant = {};
  // The text after `assistant.behind`, which is not trained, while `assistant.behind` is.
  std::string_view after_assistant = {};
  // The content of the system's turn if the conversation has none.
  std::string_view usual_system = {};
  bool always_system = false;  // True: there is always a system turn.
  std::string_view end = {};   // The text at the end of a conversation.
  System system_place = System::kOwnTurn;
  Trim trim = Trim::kNothing;
  bool alternates = false;  // True: user and assistant must alternate after the system's turn.
};

std::span<const ChatTemplate> chat_templates();
// The template with this name; nullptr: there is none.
const ChatTemplate* find_chat_template(std::string_view name);

// Writes the conversation as text. The loss counts for the assistant's contents and for the texts
// that end its turns. Throws Error{kInput} for an unknown role, an order that the format does not
// allow, and no messages.
MarkedText rendered(const ChatTemplate& form, std::span<const ChatMessage> messages);

}  // namespace tracestep
